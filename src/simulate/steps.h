#pragma once
// Which ops of an unrolled schedule belong to which step.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// The ops of one step on a worker: positions [begin, end).
struct StepRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// [worker]: all of its ops.
[[nodiscard]] std::vector<StepRange> whole_range(const Schedule& schedule);

/// N / steps. Throws ConfigError where `steps` does not divide N.
[[nodiscard]] std::int64_t micro_batches_a_step(const Schedule& schedule, std::int64_t steps);

/// [step][worker]. Throws ConfigError where `steps` does not divide N, and ScheduleError where a worker runs an op
/// after one of a later step.
[[nodiscard]] std::vector<std::vector<StepRange>> step_ranges(const Schedule& schedule, std::int64_t steps);

/// The ops of one step as a schedule of its own, with `per_step` micro-batches from 0.
[[nodiscard]] Schedule part_of(const Schedule& schedule, std::int64_t per_step, std::int64_t step,
                               const std::vector<StepRange>& ranges);

}  // namespace chimera
