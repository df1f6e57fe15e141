#pragma once
// Tokens as training samples, in an order that depends on the seed alone.

#include <cstdint>
#include <vector>

#include "data/tokens.h"

namespace chimera {

enum class SampleKind {
  NextToken,    ///< GPT-2: every position predicts the token after it
  MaskedPairs,  ///< BERT: masked tokens, and whether the second text follows the first
};

/// Token ids above the bytes, in MaskedPairs.
enum class SpecialToken : std::int64_t { Pad = 256, Class = 257, Separator = 258, Mask = 259 };

/// The target of a position that predicts nothing.
inline constexpr std::int64_t kIgnoredTarget = -100;

/// What a model is trained on at a time. All vectors are [sequence].
struct Sample {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;      ///< what each position must predict, or kIgnoredTarget
  std::vector<std::int64_t> token_types;  ///< MaskedPairs: 0 up to the first separator, then 1; NextToken: 0
  std::vector<std::uint8_t> attention;    ///< 1 where a token may be looked at, which is everywhere
  std::int64_t next_sentence = 0;         ///< MaskedPairs: 0 where the second text follows the first, else 1
  friend bool operator==(const Sample&, const Sample&) = default;
};

struct SampleOptions {
  SampleKind kind = SampleKind::NextToken;
  std::int64_t sequence = 128;  ///< tokens of a sample; at least 1, MaskedPairs 8
  std::uint64_t seed = 1;       ///< chooses order, pairs and masks
};

/// The smallest vocabulary of a model that is trained on this kind: 256 or 260.
[[nodiscard]] std::int64_t vocabulary_needed(SampleKind kind);

/// The samples of one split. The split is cut into windows that do not overlap; each epoch goes through all of them
/// once, in an order of its own. Position p = step * mini_batch + index falls into epoch p / count(): a sample is a
/// function of seed, step, index and the mini-batch size, whoever asks for it.
///
/// A window of NextToken is sequence + 1 tokens: the sample, and its targets shifted by one. A window of MaskedPairs is
/// sequence - 3 tokens, cut near its middle into the two texts of [CLS] first [SEP] second [SEP]; in half of the
/// samples the second text comes from another window (never where the split has only one). 15 % of the text tokens are
/// targets: 80 % of these are replaced by the mask, 10 % by a random byte, 10 % stay.
/// Source: Devlin et al., NAACL 2019 (sections 3.1, A.1); 0 for "follows" as in Hugging Face's BERT.
class Samples {
 public:
  /// The corpus behind `tokens` must outlive this. Throws ConfigError for a sequence that is too short, or longer than
  /// the split allows: then it names the split, its tokens, and the tokens that one sample needs.
  Samples(TokenView tokens, const SampleOptions& options);

  /// Samples in an epoch, at least 1.
  [[nodiscard]] std::int64_t count() const { return tokens_.size() / window_; }
  /// Sample `index` of 0 .. mini_batch - 1 of step `step`, which counts from 0.
  [[nodiscard]] Sample sample(std::int64_t step, std::int64_t index, std::int64_t mini_batch) const;
  /// Targets that are not kIgnoredTarget, the same in every sample.
  [[nodiscard]] std::int64_t targets_per_sample() const;

 private:
  TokenView tokens_;
  SampleOptions options_;
  std::int64_t window_;  ///< tokens of a window
};

}  // namespace chimera
