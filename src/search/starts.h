#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "search/layout.h"

namespace chimera {

/// The schedules of all registered generators, with every scale method, that place the stages as the layout does and
/// deal each replica as many micro-batches: synchronous ones of full micro-batches. `shape` is what the layout was made
/// of. Their micro-batches may be numbered in another way.
[[nodiscard]] std::vector<Schedule> generated_starts(const Layout& layout, const PipelineShape& shape);

}  // namespace chimera
