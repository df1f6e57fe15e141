#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// V-Min: stages r and 2D-1-r on worker r, split backward, about a third of 1F1B's activations. Every micro-batch
/// repeats one pattern, six slots (of one stage's F, I or W each) after the one before; free slots take the oldest W.
///
/// Any D and N. At F = I = W = 1 (of a worker's whole share) and enough micro-batches a worker waits 2D - 5/2, or
/// 2D - 3/2 where 3 divides D, and holds at most (D+4) div 3 stage units. Unequal times and latency slow it down: all
/// of a micro-batch stands on one path. Throws ConfigError if D or N is not positive, or the ops are more than
/// kMostOps. Source: Qi et al., NeurIPS'24 (Pipeline parallelism with controllable memory).
[[nodiscard]] Schedule v_min(const PipelineShape& shape);

[[nodiscard]] Generator v_min_entry();

}  // namespace chimera
