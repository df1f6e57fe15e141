#pragma once
// Learning a byte-level BPE from text.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/word_cache.h"

namespace chimera {

/// How often each of GPT-2's words stands in a text.
class WordCounts {
 public:
  /// Counts the words of a text, line by line (a line has its end): no word goes on over a line end.
  void add(std::string_view text);

  [[nodiscard]] const TextMap<std::int64_t>& counts() const { return counts_; }

 private:
  TextMap<std::int64_t> counts_;
};

struct BpeTraining {
  std::int64_t vocabulary = 8192;  ///< ids: special tokens, the 256 bytes, then merges; at least those two together
  /// Each once. One that is the letter of a byte is that byte's token too.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::int64_t min_frequency = 0;  ///< pairs that stand less often are not merged
};

/// What was learned.
struct TrainedBpe {
  std::vector<std::string> tokens;  ///< by id, as tokenizer.json writes them: a letter for each byte
  std::vector<std::pair<std::int64_t, std::int64_t>> merges;  ///< pairs of ids, in the order of their ranks
  std::size_t special_tokens = 0;                             ///< how many of the tokens are special
  std::size_t first_special = 0;                              ///< the first of these, which follow each other
};

/// Merges the most frequent pair of neighbouring tokens, of equals that of the smallest ids, until the vocabulary is
/// full or no pair is frequent enough. The result is that of the BpeTrainer of the Python package tokenizers on the
/// same lines, with its ByteLevel.alphabet() as initial alphabet, and depends on nothing else. Throws ConfigError where
/// the vocabulary is too small for what it begins with.
[[nodiscard]] TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& training);

/// The vocabulary as a tokenizer.json, which tokenizer_from_json and the package tokenizers read.
[[nodiscard]] std::string to_tokenizer_json(const TrainedBpe& trained);

}  // namespace chimera
