#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Interleaved 1F1B with one warm-up forward more on every worker, so that the forward and the backward of each turn
/// are a pair, on the last worker too, whose backward would need that forward otherwise. Shapes as interleaved 1F1B
/// has them; v = 1 is 1F1B with 2(D - r) - 1 warm-up forwards on worker r: as its pairs hand on both results at their
/// end, a micro-batch goes to the next worker and its gradient comes back in two turns, not in one as in 1F1B.
///
/// Where D divides N, the makespan is N (F+B) + (D-1)(F+B)/v, as interleaved 1F1B's. Where moreover the ops of a pair
/// complete jointly in time F&B and N >= 2D, it is (N v - (v-1) D - 1)(F+B - F&B)/v less. Worker r holds
/// min(2(D-1-r) + (v-1) g + 2, N v) activations, each a v-th of a stage's of 1F1B.
/// Throws ConfigError as interleaved_one_f_one_b() does. Source: Megatron-LM's combined 1F1B, which overlaps the
/// communication of expert parallelism.
[[nodiscard]] Schedule combined_one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator combined_one_f_one_b_entry();

}  // namespace chimera
