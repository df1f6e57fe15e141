#pragma once

// Learns a byte-level BPE vocabulary from a text: `chimera tokenizer train`. WordCounts collects the words, train_bpe()
// learns merges of their bytes, and to_tokenizer_json() writes a tokenizer.json that every reader of the format takes.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/word_cache.h"

namespace chimera {

/// Frequencies of GPT-2's words.
class WordCounts {
 public:
  /// Counts the words of a text, line by line.
  void add(std::string_view text);

  [[nodiscard]] const TextMap<std::int64_t>& counts() const { return counts_; }

 private:
  TextMap<std::int64_t> counts_;
};

struct BpeTraining {
  std::int64_t vocabulary = 8192;  ///< special tokens, 256 bytes, merges
  /// Distinct. A token that is the letter of a byte also represents that byte.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::int64_t min_frequency = 0;  ///< rarer pairs are not merged
};

struct TrainedBpe {
  std::vector<std::string> tokens;                            ///< by id, as in tokenizer.json: a letter for each byte
  std::vector<std::pair<std::int64_t, std::int64_t>> merges;  ///< pairs of ids, by rank
  std::size_t special_tokens = 0;
  std::size_t first_special = 0;  ///< the others follow
};

/// Merges the most frequent adjacent pair, of equals the pair of smallest ids, until the vocabulary is full or no pair
/// is frequent enough. Equals BpeTrainer of tokenizers (Python) on the same lines, with ByteLevel.alphabet() as initial
/// alphabet. Throws ConfigError if the vocabulary is too small for special tokens and bytes.
[[nodiscard]] TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& training);

[[nodiscard]] std::string to_tokenizer_json(const TrainedBpe& trained);

}  // namespace chimera
