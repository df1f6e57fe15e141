#include "generate/pipedream_two_bw.h"

#include <fmt/format.h>

#include "core/error.h"
#include "generate/one_f_one_b.h"
#include "generate/shape.h"

namespace chimera {

Schedule pipedream_two_bw(const PipelineShape& shape) {
  require_sane("pipedream-2bw", shape);
  if (shape.micro_batches < shape.stages) {
    throw ConfigError(
        fmt::format("pipedream-2bw: --micro-batches must be at least --stages = {}, not {} (an update takes D or more)",
                    shape.stages, shape.micro_batches));
  }
  Schedule schedule = one_f_one_b(shape);
  schedule.name = "pipedream-2bw";
  schedule.updates = AsynchronousUpdates{.micro_batches = shape.micro_batches, .versions = 2, .delay = 1};
  return schedule;
}

}  // namespace chimera
