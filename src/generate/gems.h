#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// GEMS: two replicas in opposite directions, as Chimera's, but hardly more than one micro-batch at work at a time.
/// Even micro-batches go down (stage s on worker s), odd ones up (stage s on worker D-1-s); every worker runs F and B
/// of micro-batch 0, then of 1, and so on. Each micro-batch follows the one before through the workers: the last stage
/// of one direction is the worker where the other begins. One activation at a time, two copies of the weights.
///
/// Any D and N. Makespan N (D B + F) + (D-1) F where F <= B. Throws ConfigError if D or N is not positive.
/// Source: Jain et al., SC'20.
[[nodiscard]] Schedule gems(const PipelineShape& shape);

[[nodiscard]] Generator gems_entry();

}  // namespace chimera
