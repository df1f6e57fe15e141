// Fuzzes a tokenizer_config.json and an added_tokens.json.

#include "tokenizer/tokenizer_config.h"
#include "fuzz/fuzzer.h"
#include "fuzz/tokenizers.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera::testing {
namespace {

/// A config that is read is either accepted by the vocabulary or refused.
void exercise_config(TokenizerConfig config) {
  config.tokenizer_class.clear();
  const auto words =
      read_or_refuse([&] { return tokenizer_from_words("[UNK]\n[CLS]\n[SEP]\na\n##b\n</s>\n", kSource, config); });
  if (words) exercise_tokenizer(**words, "a ab [SEP]");
  const auto merges = read_or_refuse([&] {
    return tokenizer_from_merges(R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})", kSource, "a b\n", kSource, config);
  });
  if (merges) exercise_tokenizer(**merges, "a ab <|endoftext|>");
}

void exercise_tokenizer_config(std::string_view bytes) {
  const std::string text(bytes);
  if (const auto config = read_or_refuse([&] { return read_tokenizer_config(text, kSource); }))
    exercise_config(*config);
  TokenizerConfig config;
  const auto add = [&] {
    add_listed_tokens(text, kSource, config);
    return true;
  };
  if (read_or_refuse(add)) exercise_config(config);
}

}  // namespace

const Fuzzer kTokenizerConfig("tokenizer_config", exercise_tokenizer_config);

}  // namespace chimera::testing
