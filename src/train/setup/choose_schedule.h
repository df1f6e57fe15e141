#pragma once

// The choice of the schedule of a run without --schedule. It predicts a step with each synchronous schedule, as
// `--dry-run` does, and takes the schedule that the planner ranks first (plan/plan.h): the fastest that fits in memory,
// where a tie goes to the least memory.

#include "train/setup/job.h"

namespace chimera {

/// Returns resolve_job() of the options. If they have no schedule, takes one that accepts the given flags. A resumed
/// run keeps the schedule of its checkpoint. On one host of CPUs, the prediction uses its cores and memory. If other
/// processes choose too, it depends on options and sizes alone, so that all choose alike. If no schedule accepts the
/// flags, or the profile does not cover the model, takes kDefaultSchedule, and throws its errors.
[[nodiscard]] Job choose_schedule(const TrainOptions& options);

}  // namespace chimera
