#pragma once
// Where a schedule has several orders and costs decide among them.

#include <functional>
#include <vector>

#include "generate/registry.h"
#include "schedule/schedule.h"

namespace chimera::apps {

struct ShapedSchedule {
  PipelineShape shape;
  Schedule schedule;
};

/// The generator's schedule of the shape that ends first by `makespan`, of equals the first. With one shape nothing is
/// timed. Throws ConfigError where the generator refuses one.
[[nodiscard]] ShapedSchedule fastest_of(const Generator& generator, const std::vector<PipelineShape>& shapes,
                                        const std::function<double(const Schedule&)>& makespan);

}  // namespace chimera::apps
