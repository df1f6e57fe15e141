#pragma once
// How many tokens of a BERT sample are masked. The data loader masks as many, and the planner counts their cost.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace chimera {

/// Returns the text tokens of a BERT sample: all but [CLS] and two [SEP].
[[nodiscard]] constexpr std::int64_t text_length(std::int64_t sequence) { return sequence - 3; }

/// Returns the masked tokens of a BERT sample: 15% of its text, rounded, at least 1. Source: Devlin et al., NAACL 2019,
/// section 3.1.
[[nodiscard]] inline std::int64_t masked_count(std::int64_t sequence) {
  constexpr double kMaskedShare = 0.15;
  return std::max<std::int64_t>(1, std::llround(kMaskedShare * static_cast<double>(text_length(sequence))));
}

}  // namespace chimera
