#pragma once
// Pictures of schedules as in the Chimera paper, where all ops have the same length, called a slot.

#include <string>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns the direction of a replica: "down" if each of its first D stages is on the worker after the worker of the
/// stage before (cyclic), "up" if each is on the worker before, else "".
[[nodiscard]] std::string direction(const Schedule& schedule, std::size_t replica);

/// Returns a name for pictures. Examples: `down`, `up`, `replica 2`.
[[nodiscard]] std::string replica_name(const Schedule& schedule, std::size_t replica);

/// Returns the timeline of such a picture: an op takes one slot, except a whole backward (B), which takes
/// `whole_backward` slots. Every op starts as soon as possible. If schedule.late_forwards, forwards start as late as
/// possible instead.
[[nodiscard]] Timeline slot_timeline(const Schedule& schedule, double whole_backward = 1);

/// Returns the picture of a schedule with the timeline of slot_timeline().
[[nodiscard]] Panel paper_figure(const Schedule& schedule, double whole_backward = 1);

}  // namespace chimera
