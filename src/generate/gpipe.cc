#include "generate/gpipe.h"

#include "generate/shape.h"

namespace chimera {

Schedule gpipe(const PipelineShape& shape) {
  require_sane("gpipe", shape);
  Schedule schedule{"gpipe", shape.stages, shape.micro_batches, linear_placement(shape.stages), {}};
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
      for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
        ops.push_back({kind, ReplicaId(0), StageId(s), MicroBatchId(m)});
      }
    }
  }
  return schedule;
}

}  // namespace chimera
