// Fuzzes the tokens of a vocab.json, with merges of some of them.

#include "fuzz/fuzzer.h"
#include "fuzz/tokenizers.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera::testing {
namespace {

void exercise_tokenizer_vocabulary(std::string_view bytes) {
  const auto tokenizer =
      read_or_refuse([&] { return tokenizer_from_merges(std::string(bytes), kSource, "a b\nab c\n", kSource); });
  if (tokenizer) exercise_tokenizer(**tokenizer, bytes);
}

}  // namespace

const Fuzzer kTokenizerVocabulary("tokenizer_vocabulary", exercise_tokenizer_vocabulary);

}  // namespace chimera::testing
