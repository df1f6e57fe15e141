#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera's two directions with split backward: input gradients take the slots of Chimera's backwards, and weight
/// gradients fill the bubbles. Of the schedules in this room with at most D activations on a worker, it has the
/// shortest makespan at equal op times.
[[nodiscard]] Schedule chimera_zb(const PipelineShape& shape);
[[nodiscard]] Generator chimera_zb_entry();

}  // namespace chimera
