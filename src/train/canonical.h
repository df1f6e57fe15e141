#pragma once
// Canonical reduction: which blocks the step's samples form, and which of them each copy of a stage adds.

#include "train/job.h"

namespace chimera {

/// Requires schedule, ranks and data_position. Throws ConfigError where --reduction-blocks (or its default) does not
/// give every replica of every group whole blocks, naming the numbers that do, or where a stage's weight
/// gradients are not computed in the order of a replica's micro-batches.
[[nodiscard]] CanonicalReduction canonical_reduction(const Job& job);

}  // namespace chimera
