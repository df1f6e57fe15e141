#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// V-Half: stages r and 2D-1-r on worker r, split backward, about half of 1F1B's activations. Every micro-batch repeats
/// one pattern, six slots (of one stage's F, I or W each) after the one before; free slots take the oldest W.
///
/// Any D and N. At F = I = W = 1 (of a worker's whole share) and enough micro-batches a worker waits 7D/4 - 1 for even
/// D, 7(D-1)/4 for odd, and holds at most (D+2) div 2 stage units. Keeps its rate where W + 2I >= 2F and W + 2F >= 2I.
/// Throws ConfigError if D or N is not positive, or the ops are more than kMostOps.
/// Source: Qi et al., NeurIPS'24 (Pipeline parallelism with controllable memory).
[[nodiscard]] Schedule v_half(const PipelineShape& shape);

[[nodiscard]] Generator v_half_entry();

}  // namespace chimera
