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

/// Fills in what follows from the order of the ops alone: activations in flight and weight versions kept.
void count_peaks(const Schedule& schedule, Timeline& timeline);

/// Fills in what follows from the times of ops, updates and steps: a worker's ops are added to what it was busy with
/// already, and the makespan is no less than it was.
void sum_up(Timeline& timeline);

/// Throws ScheduleError for a schedule whose ops wait for each other.
[[noreturn]] void throw_stuck(const Schedule& schedule);

}  // namespace chimera
