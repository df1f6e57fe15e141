#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// GEMS: two replicas in opposite directions, with hardly any overlap of micro-batches. Even micro-batches go down
/// (stage s on worker s), odd ones up (stage s on worker D-1-s). Every worker runs F and B of micro-batch 0, then of 1,
/// and so on, and holds one activation.
///
/// Any D and N, else ConfigError. Makespan N (D B + F) + (D-1) F if F <= B. Source: Jain et al., SC'20.
[[nodiscard]] Schedule gems(const PipelineShape& shape);

[[nodiscard]] Generator gems_entry();

}  // namespace chimera
