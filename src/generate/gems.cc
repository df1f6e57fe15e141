#include "generate/gems.h"

#include "generate/shape.h"

namespace chimera {

Schedule gems(const PipelineShape& shape) {
  require_sane("gems", shape);
  const std::int64_t depth = shape.stages;
  Schedule schedule{"gems", depth, shape.micro_batches, linear_placement(depth), {}};
  auto& up = schedule.placement.worker_of.emplace_back();
  for (std::int64_t s = 0; s < depth; ++s) up.emplace_back(depth - 1 - s);

  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t w = 0; w < depth; ++w) {
    auto& ops = schedule.workers[static_cast<std::size_t>(w)];
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      const StageId stage(m % 2 == 0 ? w : depth - 1 - w);
      for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
        ops.push_back({kind, ReplicaId(m % 2), stage, MicroBatchId(m)});
      }
    }
  }
  return schedule;
}

}  // namespace chimera
