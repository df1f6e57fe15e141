#pragma once

// Several steps in one schedule. unroll() of the room passes repeats a step; these functions find the steps again in a
// worker's list of ops. A synchronous schedule ends each step with all-reduces and updates, so a worker's list must not
// mix the ops of two steps:
//
//     worker 0 | ops of step 0 ... | update | ops of step 1 ... | update
//                ^ begin           ^ end      ^ begin           ^ end

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// Positions [begin, end) of a step's ops on a worker.
struct StepRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Returns N / steps. Throws ConfigError if `steps` does not divide N.
[[nodiscard]] std::int64_t micro_batches_a_step(const Schedule& schedule, std::int64_t steps);

/// Returns [step][worker]. Throws ConfigError if `steps` does not divide N, and ScheduleError if a worker runs an op
/// after an op of a later step.
[[nodiscard]] std::vector<std::vector<StepRange>> step_ranges(const Schedule& schedule, std::int64_t steps);

/// Returns one step's ops as a schedule of `per_step` micro-batches, numbered from 0.
[[nodiscard]] Schedule part_of(const Schedule& schedule, std::int64_t per_step, std::int64_t step,
                               const std::vector<StepRange>& ranges);

}  // namespace chimera
