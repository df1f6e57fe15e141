#pragma once
// A timeline as figures show it.

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// The same run with every forward as late as it can be without delaying another op: how the paper draws its figures.
/// One that runs together with a backward stays where it is. At equal F and B this puts each op of Chimera into its
/// slot. Makespan and order are those of `timeline`. Requires costs without links and blocking sends.
[[nodiscard]] Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline);

}  // namespace chimera
