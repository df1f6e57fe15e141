#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// DualPipeV: the upper half of DualPipe on 2D workers, folded so that one replica suffices: the model in 2D stages
/// down the D workers and up again, worker w holding stages w and 2D-1-w. What DualPipe's other direction was is the
/// way up. Any D; N at least 2D.
///
/// Where pairs run in order, each worker waits (D - 1)(F + I - W) within the makespan, times being those of one stage,
/// if W <= I <= F <= I + W; every worker holds the activations of 2D + 1 stages, D + 1/2 stage units. Throws
/// ConfigError if D or N is not positive, N < 2D, or the ops are too many. Source: DeepSeek-AI, DualPipe (its
/// repository), 2025; the fold is Sea AI Lab's "cut in half".
[[nodiscard]] Schedule dualpipev(const PipelineShape& shape);

[[nodiscard]] Generator dualpipev_entry();

}  // namespace chimera
