#pragma once

// Values that follow from a timeline's times or from the order of ops: makespan, bubbles, busy time, period,
// activations in flight. Simulated and measured timelines share them, so that both are compared by the same
// definitions.

#include <cstdint>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns a timeline of the schedule in which all times are 0.
[[nodiscard]] Timeline empty_timeline(const Schedule& schedule);

/// Sets step_ends of an asynchronous schedule: a step ends with its last op. Throws ConfigError if `steps`
/// does not divide N.
void end_steps_with_ops(const Schedule& schedule, std::int64_t steps, Timeline& timeline);

/// Sets the activations in flight and the weight versions kept, which depend only on the order of ops.
void count_peaks(const Schedule& schedule, Timeline& timeline);

/// Sets the values that depend on times. Adds ops to the workers' busy time, and only raises the makespan.
void summarize_timeline(Timeline& timeline);

}  // namespace chimera
