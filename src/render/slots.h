#pragma once
// Pictures of schedules as in the Chimera paper, where all ops have the same length, called a slot. In a bidirectional
// schedule, each replica of the model is a pipeline that runs down the workers (stage 0 on the first worker) or up.

#include <string>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns the direction of a replica, by its first D stages, where D is the number of workers: "down" if each is on
/// the worker after that of the stage before (worker 0 comes after the last one), "up" if each is on the worker before,
/// else "".
[[nodiscard]] std::string direction(const Schedule& schedule, std::size_t replica);

/// Returns a name of a replica for pictures. Examples: `down`, `up`, `replica 2`.
[[nodiscard]] std::string replica_name(const Schedule& schedule, std::size_t replica);

/// Returns the timeline of such a picture: an op takes one slot, except a whole backward (B), which takes
/// `whole_backward` slots. Every op starts as soon as possible. If schedule.late_forwards, forwards start as late as
/// possible instead.
[[nodiscard]] Timeline slot_timeline(const Schedule& schedule, double whole_backward = 1);

/// Returns the picture of a schedule with the timeline of slot_timeline().
[[nodiscard]] Panel paper_figure(const Schedule& schedule, double whole_backward = 1);

}  // namespace chimera
