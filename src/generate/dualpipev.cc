#include "generate/dualpipev.h"

#include <fmt/format.h>

#include "core/error.h"
#include "generate/dualpipe_order.h"
#include "generate/shape.h"

namespace chimera {

Schedule dualpipev(const PipelineShape& shape) {
  require_sane("dualpipev", shape, 6);
  const std::int64_t depth = shape.stages;
  if (shape.micro_batches < 2 * depth) {
    throw ConfigError(
        fmt::format("dualpipev: --micro-batches must be at least 2D = {}, not {}", 2 * depth, shape.micro_batches));
  }
  Schedule schedule{"dualpipev", 2 * depth, shape.micro_batches, vee_placement(depth), {}};
  for (std::int64_t w = 0; w < depth; ++w) {
    schedule.workers.push_back(dualpipe_order({.stage = StageId(w), .count = shape.micro_batches},
                                              {.stage = StageId(2 * depth - 1 - w), .count = shape.micro_batches}, w,
                                              depth));
  }
  return schedule;
}

}  // namespace chimera
