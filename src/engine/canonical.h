#pragma once
// Canonical reduction: which blocks the step's samples form, and which of them each copy of a stage adds.

#include <cstdint>
#include <string>

#include "engine/run_shape.h"
#include "runtime/canonical_sums.h"

namespace chimera {

/// `blocks`: Q; 0: default_reduction_blocks(). Throws ConfigError where that does not give every replica of every group
/// whole blocks, naming the numbers that do (`what` is the flag or field that says it), or where a stage's weight
/// gradients are not computed in the order of a replica's micro-batches.
[[nodiscard]] CanonicalReduction canonical_reduction(const RunShape& run, std::int64_t blocks, const std::string& what);

}  // namespace chimera
