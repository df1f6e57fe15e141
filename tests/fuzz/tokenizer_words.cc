// Fuzzes a vocab.txt.

#include "fuzz/fuzzer.h"
#include "fuzz/tokenizers.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera::testing {
namespace {

void exercise_tokenizer_words(std::string_view bytes) {
  TokenizerConfig config;
  config.bert.lowercase = config.bert.strip_accents = bytes.size() % 2 == 0;
  const auto tokenizer = read_or_refuse([&] { return tokenizer_from_words(std::string(bytes), kSource, config); });
  if (tokenizer) exercise_tokenizer(**tokenizer, bytes);
}

}  // namespace

const Fuzzer kTokenizerWords("tokenizer_words", exercise_tokenizer_words);

}  // namespace chimera::testing
