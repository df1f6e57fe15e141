#pragma once
// What all generators ask of a shape.

#include <string>

#include "schedule/schedule.h"

namespace chimera {

/// Throws ConfigError unless D and N are positive and D stages times N micro-batches stay within kMostOps ops.
void require_sane(const std::string& schedule, const PipelineShape& shape);

/// One replica: stage s on worker s.
[[nodiscard]] Placement linear_placement(std::int64_t stages);

}  // namespace chimera
