#pragma once

// Finds the steps in a schedule of several steps, which unroll() (passes/unroll.h) has made from a schedule of one
// step. If a step has 4 micro-batches, step 0 has micro-batches 0 to 3, step 1 has 4 to 7, and so on. A synchronous
// schedule ends each step with all-reduces and updates, so a worker's list must not mix the ops of two steps:
//
//     worker 0 | ops of step 0 ... | update | ops of step 1 ... | update
//                ^ begin           ^ end      ^ begin           ^ end

#include <cstddef>

#include "schedule/schedule.h"

namespace chimera {

/// Positions [begin, end) of a step's ops on a worker.
struct StepRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Returns the number of micro-batches per step. Throws ConfigError if `steps` does not divide the schedule's
/// micro-batches.
[[nodiscard]] std::int64_t micro_batches_per_step(const Schedule& schedule, std::int64_t steps);

/// Returns [step][worker]: the ops of each step. Throws ConfigError if `steps` does not divide the schedule's
/// micro-batches, ScheduleError if a worker runs an op after an op of a later step.
[[nodiscard]] std::vector<std::vector<StepRange>> step_ranges(const Schedule& schedule, std::int64_t steps);

/// Returns the ops of step `step`, from 0, as a schedule of `per_step` micro-batches, numbered from 0. `ranges` are the
/// positions of its ops on each worker.
[[nodiscard]] Schedule extract_step(const Schedule& schedule, std::int64_t per_step, std::int64_t step,
                                    const std::vector<StepRange>& ranges);

}  // namespace chimera
