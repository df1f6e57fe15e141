#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// 1F1B with v = `chunks` virtual stages on each worker: the model is cut into S = D v stages, and stage s is on worker
/// s mod D, so that a micro-batch passes through all workers v times and the pipeline fills in steps of a v-th of a
/// worker's share.
///
/// Forwards run in groups: g micro-batches at a worker's first stage, the same at its second, and so on, then the next
/// g; backwards likewise from its last stage to its first. Worker r starts with min(2(D-1-r) + (v-1) g, N v) forwards,
/// then runs one forward and one backward in turn, then the remaining backwards. N is split into max(1, N div D) equal
/// groups: g is D where D divides N, and between D and 2D for any other N above D.
///
/// Where D divides N the makespan is N (F+B) + (D-1)(F+B)/v, F and B being the time of a worker's whole share. Worker r
/// holds min(2(D-1-r) + (v-1) g + 1, N v) activations, each a v-th of a stage's of 1F1B. v = 1 at N = k D is another
/// order than 1F1B's, with more forwards ahead.
/// Throws ConfigError if D, N or v is not positive, the ops are more than kMostOps, or the groups are not equal.
/// Source: Narayanan et al., SC'21 (Megatron-LM), section 2.2.2; groups as in torch.distributed.pipelining.
[[nodiscard]] Schedule interleaved_one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator interleaved_one_f_one_b_entry();

}  // namespace chimera
