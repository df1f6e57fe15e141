#include "generate/dualpipe.h"

#include <fmt/format.h>

#include "core/error.h"
#include "generate/dualpipe_order.h"
#include "generate/shape.h"

namespace chimera {
namespace {

void require_fitting(const PipelineShape& shape) {
  require_sane("dualpipe", shape, 3);
  if (shape.stages % 2 != 0) {
    throw ConfigError(
        fmt::format("dualpipe: --stages must be even, not {} (its workers mirror each other in pairs)", shape.stages));
  }
  if (shape.micro_batches < 2 * shape.stages || shape.micro_batches % 2 != 0) {
    throw ConfigError(fmt::format("dualpipe: --micro-batches must be at least 2D = {} and even, not {}",
                                  2 * shape.stages, shape.micro_batches));
  }
}

}  // namespace

Schedule dualpipe(const PipelineShape& shape) {
  require_fitting(shape);
  const std::int64_t depth = shape.stages;
  const std::int64_t half = shape.micro_batches / 2;
  Schedule schedule{"dualpipe", depth, shape.micro_batches, linear_placement(depth), {}};
  const std::vector<WorkerId>& down = schedule.placement.worker_of.front();
  schedule.placement.worker_of.emplace_back(down.rbegin(), down.rend());
  for (std::int64_t w = 0; w < depth; ++w) {
    const Chunk down_chunk{ReplicaId(0), StageId(w), 0, half};
    const Chunk up_chunk{ReplicaId(1), StageId(depth - 1 - w), half, half};
    schedule.workers.push_back(w < depth / 2 ? dualpipe_order(down_chunk, up_chunk, w, depth / 2)
                                             : dualpipe_order(up_chunk, down_chunk, depth - 1 - w, depth / 2));
  }
  return schedule;
}

}  // namespace chimera
