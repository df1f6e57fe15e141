#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// ZB-V: the model in 2D stages that run down the workers and up again, worker w holding stages w and 2D-1-w, so that
/// the first and the last stage share worker 0. Backwards are split (I and W); the weight gradients fill what would be
/// bubbles. Any D and N; for N < 2D-1 the order of 2D-1 micro-batches without those that are not there.
///
/// For N >= 2D-1 and I at least F and W, times being those of a worker's whole share: the makespan is N(F+I+W) + (D-1)
/// max(I/2, I-W), and the longest bubble between a worker's own first and last op (D-1)(I-W), or (D-1)(I-F)/2 where
/// that is more: none at F = I = W. Every worker holds the activations of 2D stages at once, D stage units (2N stages
/// for N < D). Throws ConfigError if D or N is not positive, or the ops are too many. Source: Qi et al., "Pipeline
/// parallelism with controllable memory", NeurIPS'24.
[[nodiscard]] Schedule zb_v(const PipelineShape& shape);

[[nodiscard]] Generator zb_v_entry();

}  // namespace chimera
