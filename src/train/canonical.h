#pragma once
// Canonical reduction: which blocks the step's samples form, and which of them each copy of a stage adds.

#include "train/job.h"

namespace chimera {

/// Throws ConfigError where --reduction-blocks (or its default) does not
/// give every replica of every group whole blocks, naming the numbers that do, or where a stage's weight
/// gradients are not computed in the order of a replica's micro-batches.
[[nodiscard]] CanonicalReduction canonical_reduction(const JobShape& job);

}  // namespace chimera
