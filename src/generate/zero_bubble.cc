#include "generate/zero_bubble.h"

#include <algorithm>

#include "generate/shape.h"

namespace chimera {

std::optional<std::string> zero_bubble_refusal(const PipelineShape& shape) { return insane(shape, 3); }

Schedule zero_bubble(const char* name, const PipelineShape& shape, std::int64_t fill) {
  require_shape(name, zero_bubble_refusal(shape));
  Schedule schedule{name, shape.stages, shape.micro_batches, linear_placement(shape.stages), {}};
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    const auto add = [&](OpKind kind, std::int64_t m) {
      ops.push_back({kind, ReplicaId(0), StageId(s), MicroBatchId(m)});
    };
    const std::int64_t warm_up = std::min(fill * (shape.stages - s) - fill + 1, shape.micro_batches);
    const std::int64_t deferral = std::min(fill * s, shape.micro_batches);
    for (std::int64_t m = 0; m < warm_up; ++m) add(OpKind::Forward, m);
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      add(OpKind::BackwardInput, m);
      if (m >= deferral) add(OpKind::BackwardWeight, m - deferral);
      if (warm_up + m < shape.micro_batches) add(OpKind::Forward, warm_up + m);
    }
    for (std::int64_t m = shape.micro_batches - deferral; m < shape.micro_batches; ++m) add(OpKind::BackwardWeight, m);
  }
  return schedule;
}

}  // namespace chimera
