#pragma once
// DeepSeek-AI's schedules, in which a forward and a backward of different micro-batches run as a pair (Pairs in
// schedule/schedule.h), so that one computes while the other communicates.

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// DualPipe: two replicas in opposite directions on D workers.
[[nodiscard]] Schedule dualpipe(const PipelineShape& shape);
[[nodiscard]] Generator dualpipe_entry();

/// DualPipeV: one replica of 2D stages on D workers.
[[nodiscard]] Schedule dualpipev(const PipelineShape& shape);
[[nodiscard]] Generator dualpipev_entry();

}  // namespace chimera
