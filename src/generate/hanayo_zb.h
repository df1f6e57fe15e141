#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Hanayo's waves with split backward: 2wD stages that run down the workers and up again, w times, in deepest-first
/// order (deepest_first.h) with D micro-batches on their way at most, computed for equal times and no latency.
///
/// Any D, N and w. A worker holds at most 2wD stages' activations, D of its whole share. At F = I = W and where D
/// divides N, the makespan is N(F+I+W) + (D-1)F/2w, which no order on one replica of loop or wave placement undercuts.
/// Throws ConfigError if D, N or w is not positive, or the ops are too many. Source: ours; Liu et al., SC'23
/// (placement), and Qi et al., ICLR'24 (split backward).
[[nodiscard]] Schedule hanayo_zb(const PipelineShape& shape);

[[nodiscard]] Generator hanayo_zb_entry();

}  // namespace chimera
