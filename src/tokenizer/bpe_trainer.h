#pragma once

// Learns a byte-level BPE vocabulary from a text, for `chimera tokenizer train`. WordCounts counts the words of the
// text, train_bpe() learns merges of their bytes, and to_tokenizer_json() writes a tokenizer.json for any reader of the
// format.

#include <utility>

#include "tokenizer/word_cache.h"

namespace chimera {

/// Frequencies of the words of a text, as GPT-2's pattern divides it (WordPattern::Gpt2).
class WordCounts {
 public:
  /// Adds the words of a text, line by line, to the counts.
  void add(std::string_view text);

  [[nodiscard]] const TextMap<std::int64_t>& counts() const { return counts_; }

 private:
  TextMap<std::int64_t> counts_;
};

/// Options of train_bpe().
struct BpeTraining {
  std::int64_t vocabulary = 8192;  ///< number of tokens: special tokens, 256 bytes, and merges
  /// Distinct texts. In byte-level BPE, every byte has a printable letter; a special token that is the letter of a byte
  /// also represents this byte.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::int64_t min_frequency = 0;  ///< pairs that occur less often are not merged; 0 is as 1
};

/// A learned vocabulary.
struct TrainedBpe {
  std::vector<std::string> tokens;  ///< by id, as in tokenizer.json: a letter for each byte (byte_alphabet.h)
  std::vector<std::pair<std::int64_t, std::int64_t>> merges;  ///< pairs of ids, by rank
  std::size_t special_tokens = 0;                             ///< number of special tokens
  std::size_t first_special = 0;                              ///< id of the first special token; the others follow
};

/// Merges the most frequent pair of adjacent tokens (if several are equally frequent, the pair with the smallest ids),
/// until the vocabulary is full or no pair is frequent enough. The result equals that of BpeTrainer in the Python
/// package tokenizers for the same lines, with ByteLevel.alphabet() as initial alphabet. Throws ConfigError if the
/// vocabulary is too small for special tokens and bytes.
[[nodiscard]] TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& training);

/// Returns the text of a tokenizer.json.
[[nodiscard]] std::string to_tokenizer_json(const TrainedBpe& trained);

}  // namespace chimera
