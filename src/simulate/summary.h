#pragma once

// Computes the totals in a Timeline (schedule/timeline.h) from the times and the order of its ops: makespan, bubbles,
// busy time, period, activations in flight. Both simulate() and measured_step() (train/observe/measured_step.h) call
// these functions, so that simulated and measured values have the same definitions.

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns a timeline of the schedule in which all times are 0.
[[nodiscard]] Timeline empty_timeline(const Schedule& schedule);

/// Sets Timeline::step_ends for an asynchronous schedule of `steps` steps, in which a step ends with its last op.
/// Throws ConfigError if `steps` does not divide the schedule's micro-batches.
void end_steps_with_ops(const Schedule& schedule, std::int64_t steps, Timeline& timeline);

/// Sets each worker's peak_in_flight, peak_stage_units and peak_weight_versions, which depend only on the order of ops.
void count_peaks(const Schedule& schedule, Timeline& timeline);

/// Sets busy and idle times, bubbles and makespan from the times of ops and updates, and the period from
/// Timeline::step_ends, which the caller has set (0 if they are empty). WorkerTimeline::busy may
/// already contain other work, such as measured recomputations; the time of ops is added to it. Timeline::makespan may
/// already contain the end of an all-reduce; it is raised to the end of the last op or update.
void summarize_timeline(Timeline& timeline);

/// Returns the largest amount of memory that the worker holds at any time, in the unit of Explanation::memory.
[[nodiscard]] double peak_memory(const Explanation& explanation, std::size_t worker);

}  // namespace chimera
