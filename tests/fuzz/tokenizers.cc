#include "fuzz/tokenizers.h"

#include <algorithm>

#include "fuzz/fuzzer.h"
#include "tokenizer/unicode.h"

namespace chimera::testing {
namespace {

constexpr const char* kTexts[] = {"",
                                  " ",
                                  "the heaven and  the earth\n\n x's",
                                  "a1b22 \t\u00e9e\u0301\u6f22\U0001f600",
                                  "<s>[CLS]</s> abc",
                                  "a bc  de! fg h"};

}  // namespace

void exercise_tokenizer(const Tokenizer& tokenizer, std::string_view file) {
  const auto encoder = tokenizer.make_encoder();
  StreamDecoder stream(tokenizer, true);
  const auto try_text = [&](std::string_view text) {
    TokenIds ids;
    encoder->encode(text, ids);
    for (const TokenId id : ids) {
      require(tokenizer.token_text(id).has_value(), "an id is one of the vocabulary");
      (void)stream.push(id);
    }
    require(!find_invalid_utf8(tokenizer.decode(tokenizer.with_special(ids), true)), "text is UTF-8");
    const std::size_t cut = tokenizer.find_cut(text, 1);
    require(cut < std::max<std::size_t>(text.size(), 1), "a cut lies inside");
    if (cut == 0) return;
    TokenIds parts;
    encoder->encode(text.substr(0, cut), parts);
    encoder->encode(text.substr(cut), parts, true);
    require(parts == ids, "a text in two parts has the ids of the whole");
  };
  for (const char* text : kTexts) try_text(text);
  if (!find_invalid_utf8(file)) try_text(file);
  (void)stream.finish();
}

}  // namespace chimera::testing
