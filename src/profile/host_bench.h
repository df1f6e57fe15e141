#pragma once
// What a step takes beside its layers and messages.

#include "model/stage.h"
#include "profile/lockstep.h"

namespace chimera {

/// Seconds of a step of the optimizer for each parameter of the stage: the norm of the gradients, which ranks 0 and 1
/// (`pair`) have just summed, clipping, AdamW and zeroing them. The mean over computing ranks of their medians, in time
/// as seconds_of() counts it; all ranks call it.
[[nodiscard]] double measure_optimizer(Lockstep& ranks, ParameterGroupId pair, Stage& stage, std::int64_t threads,
                                       double seconds);

/// Seconds of CPU time that executor and transport add to an op: of a pipeline of two processes whose stages compute
/// next to nothing, what ops themselves take left out. `pair`: the group of ranks 0 and 1. The larger median of both;
/// all ranks call it.
[[nodiscard]] double measure_op_overhead(Lockstep& ranks, ParameterGroupId pair, double seconds);

/// Seconds of the sum over all ranks that ends a step: the median. All ranks call it; the result is rank 0's.
[[nodiscard]] double measure_step_overhead(Lockstep& ranks);

}  // namespace chimera
