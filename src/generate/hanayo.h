#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Hanayo: the model in 2wD stages that run down the workers and up again, w times. With t = s mod 2D stage s is on
/// worker t, or on 2D-1-t where that is less than D. The order is greedy at F = 1, B = 2 a stage and no latency:
/// backward before forward, the older micro-batch first, then the deeper stage; for N > D the earliest end of three
/// greedy orders, of which this is one and another sends D micro-batches at a time through the waves. A worker holds at
/// most 2wD stages' activations, D of its whole share, by credits that cannot deadlock (see list_schedule).
///
/// Any D, N and w. Bubble ratio at B = 2F and N = D: .333, .213, .119 for D = 4 and w = 1, 2, 4; .368, .238, .135 for D
/// = 8; published is (2D-2)/(3wD+D-1). Throws ConfigError if D, N or w is not positive, or the ops are too many.
/// Source: Liu et al., SC'23.
[[nodiscard]] Schedule hanayo(const PipelineShape& shape);

[[nodiscard]] Generator hanayo_entry();

}  // namespace chimera
