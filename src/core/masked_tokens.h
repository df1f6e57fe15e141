#pragma once
// The number of masked tokens in a BERT sample, which the model learns to predict. The data loader (data/samples.h)
// masks this many tokens, and the planner computes the cost of their predictions.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace chimera {

/// Returns the number of text tokens in a BERT sample of `sequence` tokens: all but [CLS] and two [SEP].
[[nodiscard]] constexpr std::int64_t text_length(std::int64_t sequence) { return sequence - 3; }

/// Returns the number of masked tokens in a BERT sample of `sequence` tokens: 15% of its text, rounded, at least 1.
/// Source: Devlin et al., NAACL 2019, section 3.1.
[[nodiscard]] inline std::int64_t masked_count(std::int64_t sequence) {
  constexpr double kMaskedShare = 0.15;
  return std::max<std::int64_t>(1, std::llround(kMaskedShare * static_cast<double>(text_length(sequence))));
}

}  // namespace chimera
