#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Looped breadth-first pipeline: the model in S = D v stages, stage s on worker s mod D. A worker runs all N forwards
/// of its first stage, then all of its second, and so on; then all backwards of its last stage, of the one before, and
/// so on. Each stage is visited once forward and once backward, so that sharded weights are gathered twice a step.
///
/// Any D, N and v. Makespan ((v-1) max(N, D) + N + D - 1)(F+B)/v, F and B being the time of a worker's whole share;
/// every worker holds the activations of N v stages, N of its whole share. Backwards are in the order of the samples,
/// which torch.distributed.pipelining reverses; both take as long.
/// Throws ConfigError if D, N or v is not positive, or the ops are more than kMostOps.
/// Source: Lamy-Poirier, MLSys'23 (Breadth-first pipeline parallelism).
[[nodiscard]] Schedule looped_bfs(const PipelineShape& shape);

[[nodiscard]] Generator looped_bfs_entry();

}  // namespace chimera
