#pragma once
// How a BERT sample is made from text: where a window is cut in two, which texts are paired, what is masked.

#include <cstdint>

#include "data/samples.h"

namespace chimera {

/// Text tokens of a sample: all but [CLS] and two [SEP].
[[nodiscard]] constexpr std::int64_t text_length(std::int64_t sequence) { return sequence - 3; }

/// Targets of a sample: 15 % of its text, rounded, at least 1.
[[nodiscard]] std::int64_t masked_count(std::int64_t sequence);

/// Where in tokens[start .. start + length - 1] a second text begins, counted from start: behind the sentence end that
/// is nearest the middle; for want of one the line end, the blank, the middle itself. Only the middle half is searched.
/// length >= 5.
[[nodiscard]] std::int64_t find_cut(const TokenView& tokens, std::int64_t start, std::int64_t length);

/// The sample at place `position` of the order of all epochs, whose own window is `window`.
[[nodiscard]] Sample masked_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position,
                                 std::int64_t window);

}  // namespace chimera
