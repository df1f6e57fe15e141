// Fuzzes a merges.txt.

#include "fuzz/fuzzer.h"
#include "fuzz/tokenizers.h"
#include "tokenizer/tokenizer_folder.h"

namespace chimera::testing {
namespace {

void exercise_tokenizer_merges(std::string_view bytes) {
  constexpr const char* kVocabulary =
      R"({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "aa": 5, "bc": 6, "<|endoftext|>": 7, "t": 8, "h": 9, "th": 10})";
  const auto tokenizer =
      read_or_refuse([&] { return tokenizer_from_merges(kVocabulary, kSource, std::string(bytes), kSource); });
  if (tokenizer) exercise_tokenizer(**tokenizer, bytes);
}

}  // namespace

const Fuzzer kTokenizerMerges("tokenizer_merges", exercise_tokenizer_merges);

}  // namespace chimera::testing
