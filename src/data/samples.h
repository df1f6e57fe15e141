#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/masked_tokens.h"
#include "core/random.h"
#include "data/corpus.h"
#include "data/token_stream.h"

// Tokens as training samples, in an order that depends on the seed alone.

// How a BERT sample is made from text: where a window is cut in two, which texts are paired, what is masked.

// A shuffled order that is computed, never stored.

namespace chimera {

enum class SampleKind {
  NextToken,    ///< GPT-2: every position predicts the token after it
  MaskedPairs,  ///< BERT: masked tokens, and whether the second text follows the first
};

/// What MaskedPairs puts among the tokens of the text. The defaults are ids above the bytes.
struct SpecialTokens {
  std::int64_t classification = 257;  ///< [CLS]; 256 is for padding, which no sample needs
  std::int64_t separator = 258;       ///< [SEP]
  std::int64_t mask = 259;            ///< [MASK]
  friend bool operator==(const SpecialTokens&, const SpecialTokens&) = default;
};

/// The target of a position that predicts nothing.
inline constexpr std::int64_t kIgnoredTarget = -100;

/// What a model is trained on at a time. All vectors are [sequence].
struct Sample {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;      ///< what each position must predict, or kIgnoredTarget
  std::vector<std::int64_t> token_types;  ///< MaskedPairs: 0 up to the first separator, then 1; NextToken: 0
  std::vector<std::uint8_t> attention;    ///< 1 where a token may be looked at, which is everywhere
  std::vector<std::int64_t> documents;    ///< Split: the number of each token's document in the sample; Pack: none
  std::int64_t next_sentence = 0;         ///< MaskedPairs: 0 where the second text follows the first, else 1
  friend bool operator==(const Sample&, const Sample&) = default;
};

struct SampleOptions {
  SampleKind kind = SampleKind::NextToken;
  std::int64_t sequence = 128;  ///< tokens of a sample; at least 1, MaskedPairs 8
  std::uint64_t seed = 1;       ///< chooses order, pairs and masks
  Documents documents = Documents::Pack;
  SpecialTokens special = {};                   ///< of MaskedPairs
  std::int64_t replacements = kByteVocabulary;  ///< MaskedPairs: a replaced token is one of the ids below this
  bool is_plain_text = true;                    ///< MaskedPairs: tokens are bytes, so that ends of sentences are seen
};

/// The smallest vocabulary of a model that is trained on this kind of samples of plain text: 256 or 260.
[[nodiscard]] std::int64_t vocabulary_needed(SampleKind kind);

/// The samples of one split. Each source is cut into windows that do not overlap. Place p = step * mini_batch + index
/// of the order belongs to a source and is its q-th (Mixture::place; with one source q = p); each epoch of a source
/// goes through all of its windows once, in an order of its own, and q falls into epoch q / windows. So a sample is a
/// function of seed, step, index and the mini-batch size, whoever asks for it, and nothing grows with the data.
///
/// A window of NextToken is sequence + 1 tokens: the sample, and its targets shifted by one. A window of MaskedPairs is
/// sequence - 3 tokens, cut near its middle into the two texts of [CLS] first [SEP] second [SEP]; in half of the
/// samples the second text comes from another window (never where the split has only one). 15 % of the text tokens are
/// targets: 80 % of these are replaced by the mask, 10 % by a random token, 10 % stay.
/// Source: Devlin et al., NAACL 2019 (sections 3.1, A.1); 0 for "follows" as in Hugging Face's BERT.
class Samples {
 public:
  /// Throws ConfigError for a sequence that is too short, or longer than a source allows: then it names the source, its
  /// tokens, and the tokens that one sample needs.
  Samples(MixedTokens tokens, const SampleOptions& options);
  /// Samples of one source.
  Samples(TokenView tokens, const SampleOptions& options);

  /// Windows of all sources, at least 1: samples in an epoch, where there is one source.
  [[nodiscard]] std::int64_t count() const;
  /// Sample `index` of 0 .. mini_batch - 1 of step `step`, which counts from 0.
  [[nodiscard]] Sample sample(std::int64_t step, std::int64_t index, std::int64_t mini_batch) const;
  /// Targets that are not kIgnoredTarget, the same in every sample.
  [[nodiscard]] std::int64_t targets_per_sample() const;

 private:
  [[nodiscard]] std::int64_t windows(const TokenView& source) const { return source.size() / window_; }

  MixedTokens tokens_;
  SampleOptions options_;
  std::int64_t window_;  ///< tokens of a window
};

/// The samples of one source in the order of its tokens, each once: what a model is evaluated on. Windows of NextToken
/// are sequence + 1 tokens and begin every `sequence` tokens, so that every token but the first is a target once; those
/// of MaskedPairs are the ones that Samples has, and sample i has the pair and the masks of place i. What is left over
/// at the end makes no window.
class OrderedSamples {
 public:
  /// Throws ConfigError as Samples does.
  OrderedSamples(TokenView tokens, const SampleOptions& options);

  /// Windows, at least 1.
  [[nodiscard]] std::int64_t count() const;
  /// The sample at `index`, 0 .. count() - 1.
  [[nodiscard]] Sample sample(std::int64_t index) const;
  /// The same as Samples::targets_per_sample().
  [[nodiscard]] std::int64_t targets_per_sample() const;

 private:
  TokenView tokens_;
  SampleOptions options_;
  std::int64_t window_;  ///< tokens of a window
};

/// Where in a window of at least 5 tokens a second text begins: behind the sentence end that is nearest the middle; for
/// want of one the line end, the blank, the middle itself. Only the middle half is searched.
[[nodiscard]] std::int64_t find_cut(std::span<const std::int64_t> window);

/// The sample at place `position` of the order of all epochs, whose own window is `window`.
[[nodiscard]] Sample masked_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position,
                                 std::int64_t window);

/// A permutation of 0 .. size - 1, chosen by seed and stream, in O(1) memory and time.
/// A Feistel network permutes the smallest 2^(2k) >= size; a result outside is permuted again until it falls inside
/// (cycle walking, fewer than 4 turns on average). The round function is CounterRandom.
/// Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
class Permutation {
 public:
  /// size > 0. `stream` tells the permutations of one seed apart.
  Permutation(std::int64_t size, std::uint64_t seed, std::string_view stream);
  /// The stream "data.permutation.NUMBER"; the number is e.g. the epoch.
  Permutation(std::int64_t size, std::uint64_t seed, std::int64_t number);

  /// The image of `i`, both in 0 .. size - 1.
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const;

 private:
  [[nodiscard]] std::uint64_t feistel(std::uint64_t value) const;

  std::uint64_t size_;
  unsigned half_bits_;
  CounterRandom round_function_;
};

}  // namespace chimera
