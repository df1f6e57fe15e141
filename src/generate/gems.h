#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// GEMS: two replicas in opposite directions, of which one is active at a time.
[[nodiscard]] Schedule gems(const PipelineShape& shape);
[[nodiscard]] Generator gems_entry();

}  // namespace chimera
