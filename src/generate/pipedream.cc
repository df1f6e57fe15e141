#include "generate/pipedream.h"

#include <algorithm>

#include "generate/one_f_one_b.h"
#include "generate/shape.h"

namespace chimera {

Schedule pipedream(const PipelineShape& shape) {
  require_sane("pipedream", shape);
  Schedule schedule = one_f_one_b(shape);
  schedule.name = "pipedream";
  schedule.updates = AsynchronousUpdates{.micro_batches = 1, .versions = shape.stages};
  for (auto& ops : schedule.workers) {
    for (Op& op : ops) {
      const std::int64_t behind = shape.stages - 1 - op.stage.value();
      op.weight_version = static_cast<std::int32_t>(std::max<std::int64_t>(0, op.micro_batch.value() - behind));
    }
  }
  return schedule;
}

}  // namespace chimera
