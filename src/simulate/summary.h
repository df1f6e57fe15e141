#pragma once
// What the simulators have in common around the times of ops, sums and updates.

#include <cstdint>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// A timeline with room for the schedule's ops.
[[nodiscard]] Timeline empty_timeline(const Schedule& schedule);

/// Fills in step_ends of an asynchronous schedule, where a step ends with its last op.
/// Throws ConfigError where `steps` does not divide N.
void end_steps_with_ops(const Schedule& schedule, std::int64_t steps, Timeline& timeline);

/// Fills in all that follows from the times, except for the lower bound.
void sum_up(const Schedule& schedule, Timeline& timeline);

/// Throws ScheduleError for a schedule whose ops wait for each other.
[[noreturn]] void throw_stuck(const Schedule& schedule);

}  // namespace chimera
