#pragma once
// Figures as in the paper: all ops take one slot of equal length.

#include <string>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns the direction of a replica's first D stages: "down" if each is on the next worker (cyclic), "up" if on the
/// previous worker, else "".
[[nodiscard]] std::string direction(const Schedule& schedule, std::size_t replica);

/// Examples: `down`, `up`, `replica 2`.
[[nodiscard]] std::string replica_name(const Schedule& schedule, std::size_t replica);

/// Returns the timeline of the paper's figure: every op takes one slot, a whole backward `whole_backward` slots, and
/// starts as soon as possible. With Schedule::late_forwards, forwards start as late as possible.
[[nodiscard]] Timeline in_slots(const Schedule& schedule, double whole_backward = 1);

[[nodiscard]] Panel figure_of(const Schedule& schedule, double whole_backward = 1);

}  // namespace chimera
