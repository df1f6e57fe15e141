#pragma once
// Wave pipelines of one replica: 2w stages on each of D workers go down the workers and up again, w times. With w = 1
// and D = 3:
//
//   worker 0   stages 0 and 5      F of a micro-batch: 0 1 2 3 4 5, that is down to worker 2 and back up to worker 0
//   worker 1   stages 1 and 4      B of the same:      5 4 3 2 1 0
//   worker 2   stages 2 and 3

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Hanayo, with whole backwards.
[[nodiscard]] Schedule hanayo(const PipelineShape& shape);
[[nodiscard]] Generator hanayo_entry();

/// Hanayo with split backward.
[[nodiscard]] Schedule hanayo_zb(const PipelineShape& shape);
[[nodiscard]] Generator hanayo_zb_entry();

}  // namespace chimera
