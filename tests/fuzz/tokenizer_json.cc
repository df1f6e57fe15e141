// Fuzzes a tokenizer.json.

#include "tokenizer/tokenizer_json.h"
#include "fuzz/fuzzer.h"
#include "fuzz/tokenizers.h"

namespace chimera::testing {
namespace {

void exercise_tokenizer_json(std::string_view bytes) {
  const auto tokenizer = read_or_refuse([&] { return tokenizer_from_json(std::string(bytes), kSource); });
  if (tokenizer) exercise_tokenizer(**tokenizer, bytes);
}

}  // namespace

const Fuzzer kTokenizerJson("tokenizer_json", exercise_tokenizer_json);

}  // namespace chimera::testing
