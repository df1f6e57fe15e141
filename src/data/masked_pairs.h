#pragma once
// How a BERT sample is made from text: where a window is cut in two, which texts are paired, what is masked.

#include <cstdint>
#include <span>

#include "core/masked_tokens.h"
#include "data/samples.h"

namespace chimera {

/// Where in a window of at least 5 tokens a second text begins: behind the sentence end that is nearest the middle; for
/// want of one the line end, the blank, the middle itself. Only the middle half is searched.
[[nodiscard]] std::int64_t find_cut(std::span<const std::int64_t> window);

/// The sample at place `position` of the order of all epochs, whose own window is `window`.
[[nodiscard]] Sample masked_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position,
                                 std::int64_t window);

}  // namespace chimera
