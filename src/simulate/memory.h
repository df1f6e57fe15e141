#pragma once
// What a worker holds in memory over time; explain() says what is counted.

#include <cstddef>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// For every worker, what it holds from each point on. `messages` are all of the timeline's.
[[nodiscard]] std::vector<std::vector<MemoryPoint>> memory_over_time(const Schedule& schedule, const CostModel& costs,
                                                                     const Timeline& timeline,
                                                                     const std::vector<Message>& messages);

}  // namespace chimera
