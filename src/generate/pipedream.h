#pragma once
// Asynchronous schedules: 1F1B without a flush. The functions return a single step, which starts with weight version 0
// and therefore still has the makespan of 1F1B. passes/unroll.h repeats the step; the repetition has bubbles only at
// its start and end.

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// PipeDream-2BW: one update per step, two weight versions.
[[nodiscard]] Schedule pipedream_two_bw(const PipelineShape& shape);
[[nodiscard]] Generator pipedream_two_bw_entry();

/// PipeDream: one update per micro-batch, as many weight versions as micro-batches in flight.
[[nodiscard]] Schedule pipedream(const PipelineShape& shape);
[[nodiscard]] Generator pipedream_entry();

}  // namespace chimera
