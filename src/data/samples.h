#pragma once

// Training samples (inputs and targets) made from tokens. A sample is a pure function of the seed, the step and the
// sample's index in the mini-batch. Ranks therefore divide a mini-batch without communication, and a resumed run
// continues with the same data. sample_prefetcher.h makes samples ahead of time in a thread.

#include "core/masked_tokens.h"
#include "data/corpus.h"
#include "data/token_stream.h"

namespace chimera {

/// Training task of a model.
enum class SampleKind {
  NextToken,    ///< GPT: each target is the next token
  MaskedPairs,  ///< BERT: masked tokens, and whether the second text follows
};

/// Ids of the special tokens of MaskedPairs. The defaults are above the ids of bytes (0 .. 255).
struct SpecialTokens {
  std::int64_t classification = 257;  ///< [CLS]; 256 is reserved for padding
  std::int64_t separator = 258;       ///< [SEP]
  std::int64_t mask = 259;            ///< [MASK]
  friend bool operator==(const SpecialTokens&, const SpecialTokens&) = default;
};

/// Target of a position that does not count in the loss, as in PyTorch.
inline constexpr std::int64_t kIgnoredTarget = -100;

/// A sample of `sequence` tokens. All vectors have this length.
struct Sample {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;      ///< expected tokens, or kIgnoredTarget
  std::vector<std::int64_t> token_types;  ///< MaskedPairs: 0 up to the first separator, then 1; NextToken: 0
  std::vector<std::uint8_t> attention;    ///< attention mask of the model's input; always 1
  std::vector<std::int64_t> documents;    ///< document number of each token; empty unless attention must not cross them
  std::int64_t next_sentence = 0;         ///< MaskedPairs: 0 if the second text follows the first, else 1
  friend bool operator==(const Sample&, const Sample&) = default;
};

/// How samples are made.
struct SampleOptions {
  SampleKind kind = SampleKind::NextToken;
  std::int64_t sequence = 128;                  ///< tokens; at least 1, for MaskedPairs at least 8
  std::uint64_t seed = 1;                       ///< for order, pairs and masks
  Documents documents = Documents::Pack;        ///< whether attention may cross from one document to another (Pack)
  SpecialTokens special = {};                   ///< for MaskedPairs
  std::int64_t replacements = kByteVocabulary;  ///< MaskedPairs: random replacement ids are below this
  /// MaskedPairs: whether tokens are bytes of text, so that a sample can be cut at the end of a sentence (find_cut())
  bool is_plain_text = true;
};

/// Returns the smallest vocabulary for bytes of text: 256, or 260 with the special tokens of MaskedPairs.
[[nodiscard]] std::int64_t vocabulary_needed(SampleKind kind);

/// Samples of one split of the data (training or validation), each a function of seed, step, index and mini-batch size.
/// Any number of threads may read.
///
/// Each source (path of the data) is cut into disjoint windows of tokens. The samples of a run have positions: p = step
/// * mini_batch + index. With several sources, the mixture (mixture.h) assigns position p to one of them, as its q-th
/// sample; with a single source, q = p. An epoch of a source visits each of its windows once, in a new order; the q-th
/// sample belongs to epoch q / windows.
///
/// A NextToken window has sequence + 1 tokens: the sample and its shifted targets. A MaskedPairs window has `sequence -
/// 3` tokens, cut near its middle into the texts of [CLS] first [SEP] second [SEP]. In half of the samples the second
/// text is from another window, if there is one. 15% of the text tokens are targets: 80% of these become the mask, 10%
/// a random token, and 10% stay.
///
/// Source: Devlin et al., NAACL 2019 (sections 3.1, A.1); 0 for "follows" as in Hugging Face's BERT.
class Samples {
 public:
  /// Throws ConfigError if the sequence is too short, or longer than a source.
  Samples(MixedTokens tokens, const SampleOptions& options);
  Samples(TokenView tokens, const SampleOptions& options);

  /// Returns the number of windows over all sources, at least 1.
  [[nodiscard]] std::int64_t count() const;
  /// Returns the sample at position p, from 0, of the shuffled endless order. Throws the errors of TokenView::read().
  [[nodiscard]] Sample sample_at(std::int64_t position) const;
  /// Returns the sum of the squared lengths of the documents in the NextToken sample at position p, a measure of its
  /// time in attention within documents (engine/dealing.h).
  [[nodiscard]] double squared_documents_at(std::int64_t position) const;
  /// Returns the number of targets in a sample that are not kIgnoredTarget; equal for all samples.
  [[nodiscard]] std::int64_t targets_per_sample() const;

  /// Returns the sample of window `index`, 0 .. ordered_count() - 1, without shuffling, for evaluation. Requires a
  /// single source. NextToken windows overlap here by one token, so that each token except the first is a target once.
  /// MaskedPairs windows do not overlap; the random pair and masks are drawn as for position `index`. An incomplete
  /// last window is dropped.
  [[nodiscard]] Sample ordered_sample(std::int64_t index) const;
  /// Returns the number of samples that ordered_sample() has.
  [[nodiscard]] std::int64_t ordered_count() const;

 private:
  struct Window {
    const TokenView& source;
    std::int64_t number = 0;  ///< In the source
  };
  [[nodiscard]] Window window_at(std::int64_t position) const;
  [[nodiscard]] std::int64_t windows(const TokenView& source) const { return source.size() / window_; }

  MixedTokens tokens_;
  SampleOptions options_;
  std::int64_t window_;  ///< tokens per window
};

/// Returns the index at which the second text of a MaskedPairs sample starts in a window of at least 5 byte tokens.
/// Searches the middle half of the window for the end of a sentence, else of a line, else of a word, nearest to the
/// middle. Without any, returns the middle.
[[nodiscard]] std::int64_t find_cut(std::span<const std::int64_t> window);

/// Returns a MaskedPairs sample. Its first text is from the window with index `window`, from 0. `position` is the
/// position p of the sample in the run (see Samples); with the seed, it determines the second text and the masks.
[[nodiscard]] Sample masked_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position,
                                 std::int64_t window);

}  // namespace chimera
