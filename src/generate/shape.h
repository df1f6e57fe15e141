#pragma once
// What all generators ask of a shape.

#include <string>

#include "schedule/schedule.h"

namespace chimera {

/// Throws ConfigError unless D and N are positive and the ops at most kMostOps, each of D workers running `ops_each`
/// for each of N micro-batches.
void require_sane(const std::string& schedule, const PipelineShape& shape, std::int64_t ops_each = 2);

/// One replica: stage s on worker s.
[[nodiscard]] Placement linear_placement(std::int64_t stages);

}  // namespace chimera
