#include "generate/one_f_one_b.h"

#include <algorithm>

#include "generate/shape.h"

namespace chimera {

Schedule one_f_one_b(const PipelineShape& shape) {
  require_sane("1f1b", shape);
  Schedule schedule{"1f1b", shape.stages, shape.micro_batches, linear_placement(shape.stages), {}};
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    const auto add = [&](OpKind kind, std::int64_t m) {
      ops.push_back({kind, ReplicaId(0), StageId(s), MicroBatchId(m)});
    };
    const std::int64_t warm_up = std::min(shape.stages - 1 - s, shape.micro_batches);
    for (std::int64_t m = 0; m < warm_up; ++m) add(OpKind::Forward, m);
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      if (warm_up + m < shape.micro_batches) add(OpKind::Forward, warm_up + m);
      add(OpKind::Backward, m);
    }
  }
  return schedule;
}

}  // namespace chimera
