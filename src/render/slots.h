#pragma once
// When a schedule's figure shows each op.

#include "render/panel.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// The timeline of the figure that the schedule's paper draws: every op takes one slot, a whole backward
/// `whole_backward` of them, and starts as soon as it can. Only where the paper spaces forwards (draws_forwards_late)
/// does each stand as late as nothing waits for it.
[[nodiscard]] Timeline in_slots(const Schedule& schedule, double whole_backward = 1);

/// The panel of that figure.
[[nodiscard]] Panel figure_of(const Schedule& schedule, double whole_backward = 1);

}  // namespace chimera
