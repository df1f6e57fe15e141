#pragma once
// Chimera, the schedule of the paper (Li and Hoefler, SC'21): two pipelines run through the same workers in opposite
// directions, and each fills the other's bubbles (idle times). A step with D = 4 workers and N = 4 micro-batches, in
// slots of equal length; 1F2 is the forward of micro-batch 2 at stage 1, 1B2 its backward, and a dot is a bubble:
//
//   the down pipeline, stage w on worker w      worker 0   0F0  .  0F1  .   .   .   .  0B0  .  0B1
//                                               worker 1    .  1F0  .  1F1  .   .  1B0  .  1B1  .
//                                               worker 2    .   .  2F0  .  2F1 2B0  .  2B1  .   .
//                                               worker 3    .   .   .  3F0 3B0 3F1 3B1  .   .   .
//
//   the up pipeline, stage 3-w on worker w      worker 0    .   .   .  3F2 3B2 3F3 3B3  .   .   .
//                                               worker 1    .   .  2F2  .  2F3 2B2  .  2B3  .   .
//                                               worker 2    .  1F2  .  1F3  .   .  1B2  .  1B3  .
//                                               worker 3   0F2  .  0F3  .   .   .   .  0B2  .  0B3
//
//   both together                               worker 0   0F0  .  0F1 3F2 3B2 3F3 3B3 0B0  .  0B1
//                                               worker 1    .  1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1  .
//                                               worker 2    .  1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3  .
//                                               worker 3   0F2  .  0F3 3F0 3B0 3F1 3B1 0B2  .  0B3
//
// A worker is idle for D-2 slots per step; with 1F1B, the usual schedule of a single pipeline, for 2(D-1). The price:
// each worker holds two stages, so weights exist twice, and the two workers of a stage sum its gradients before the
// update. `chimera schedule chimera --stages 4 --micro-batches 4` draws the last picture.

#include "generate/generator.h"

namespace chimera {

/// Returns the registry's entry for this schedule: its rule (a sentence for help and pages), the formula of a step's
/// duration, and the function that makes it. Of a PipelineShape (schedule/pipeline_shape.h), it uses `pipelines`, the
/// number of pipelines (half down, half up); `chunks`, the number of stages that each of them has on a worker; and
/// `scale`, the method for more than D micro-batches.
[[nodiscard]] Generator chimera_entry();

}  // namespace chimera
