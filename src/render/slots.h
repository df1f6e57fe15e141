#pragma once

#include <string>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

// When a schedule's figure shows each op.

namespace chimera {

/// The way a replica's first D stages run through the D workers, which later ones may turn: "down" from each worker to
/// the next (the last's next is the first), "up" likewise backwards, "" where neither holds.
[[nodiscard]] std::string direction(const Schedule& schedule, std::size_t replica);

/// `down`, `up`, or `replica 2`.
[[nodiscard]] std::string replica_name(const Schedule& schedule, std::size_t replica);

/// The timeline of the figure that the schedule's paper draws: every op takes one slot, a whole backward
/// `whole_backward` of them, and starts as soon as it can. Only where the paper spaces forwards (draws_forwards_late)
/// does each stand as late as nothing waits for it.
[[nodiscard]] Timeline in_slots(const Schedule& schedule, double whole_backward = 1);

/// The panel of that figure.
[[nodiscard]] Panel figure_of(const Schedule& schedule, double whole_backward = 1);

}  // namespace chimera
