#include "generate/dualpipe.h"

#include <fmt/format.h>

#include "generate/dualpipe_order.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kDualpipe = "dualpipe";

std::optional<std::string> dualpipe_refusal(const PipelineShape& shape) {
  if (auto refused = insane(shape, 3)) return refused;
  if (shape.stages % 2 != 0) {
    return fmt::format("--stages must be even, not {} (its workers mirror each other in pairs)", shape.stages);
  }
  if (shape.micro_batches < 2 * shape.stages || shape.micro_batches % 2 != 0) {
    return fmt::format("--micro-batches must be at least 2D = {} and even, not {}", 2 * shape.stages,
                       shape.micro_batches);
  }
  return std::nullopt;
}

}  // namespace

Schedule dualpipe(const PipelineShape& shape) {
  require_shape(kDualpipe, dualpipe_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t half = shape.micro_batches / 2;
  Schedule schedule{kDualpipe, depth, shape.micro_batches, linear_placement(depth), {}};
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

Generator dualpipe_entry() {
  return {.name = kDualpipe,
          .generate = dualpipe,
          .refusal = dualpipe_refusal,
          .rule =
              "Two replicas in opposite directions, fed from both ends, with split backward; in the middle a forward "
              "of one direction and a backward of the other are a pair, which may run together.",
          .constraints = "D even, N even, N >= 2D",
          .closed_form = "bubble (D/2-1)(F+I-W)",
          .activations = "D+1",
          .source = "DeepSeek-AI, DeepSeek-V3 technical report, 2024",
          .replicas = [](const PipelineShape&) { return std::int64_t{2}; }};
}

}  // namespace chimera
