#include "generate/dualpipe.h"

#include <fmt/format.h>

#include "generate/shape.h"

namespace chimera {

std::vector<Op> dualpipe_order(const Chunk& near, const Chunk& far, std::int64_t h, std::int64_t H) {
  using enum Step;
  TwoChunks order(near, far);
  const std::int64_t inward = H - h - 1;  // stages from here to the middle
  order.repeat(2 * inward, {F0});
  order.repeat(h + 1, {F0, F1});
  order.repeat(inward, {I1, OldestW, F1});
  // on the middle workers, the first backward has no partner
  const std::int64_t first = inward == 0 ? 1 : 0;
  order.repeat(first, {F0, B1, F1, And, B0});
  order.repeat(near.count - 2 * H + h + 1 - first, {F0, And, B1, F1, And, B0});
  order.repeat(inward, {B1, F1, And, B0});
  // the last h + 1 of these backwards are split
  order.repeat((h + 1) / 2, {B1, B0});
  if (h % 2 == 0) order.repeat(1, {B1, I0});
  order.repeat((h + 1) / 2, {I1, I0});
  order.repeat(inward, {OldestW, I0});
  order.repeat(h + 1, {OldestW});
  return order.take();
}

namespace {

constexpr const char* kDualpipev = "dualpipev";

std::optional<std::string> dualpipev_refusal(const PipelineShape& shape) {
  if (auto refused = shape_error(shape, 6)) return refused;
  if (shape.micro_batches >= 2 * shape.stages) return std::nullopt;
  return fmt::format("--micro-batches must be at least 2D = {}, not {}", 2 * shape.stages, shape.micro_batches);
}

}  // namespace

Schedule dualpipev(const PipelineShape& shape) {
  require_shape(kDualpipev, dualpipev_refusal(shape));
  const std::int64_t depth = shape.stages;
  Schedule schedule{kDualpipev, 2 * depth, shape.micro_batches, wave_placement(depth, 2), {}};
  for (std::int64_t w = 0; w < depth; ++w) {
    schedule.workers.push_back(dualpipe_order({.stage = StageId(w), .count = shape.micro_batches},
                                              {.stage = StageId(2 * depth - 1 - w), .count = shape.micro_batches}, w,
                                              depth));
  }
  return schedule;
}

Generator dualpipev_entry() {
  return {.name = kDualpipev,
          .generate = dualpipev,
          .refusal = dualpipev_refusal,
          .rule = "DualPipe folded at its middle: one replica, with stages r and 2D-1-r on worker r.",
          .constraints = "N >= 2D",
          .closed_form = "bubble (D-1)(F+I-W)/2",
          .activations = "2D+1 halves",
          .source = "DeepSeek-AI, DualPipe, 2025",
          .stages_a_worker = [](const PipelineShape&) { return std::int64_t{2}; }};
}

namespace {

constexpr const char* kDualpipe = "dualpipe";

std::optional<std::string> dualpipe_refusal(const PipelineShape& shape) {
  if (auto refused = odd_stages(shape.stages, "its workers mirror each other in pairs")) return refused;
  if (auto refused = shape_error(shape, 3)) return refused;
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
              "Two replicas in opposite directions, fed from both ends, with split backward. In the middle, a forward "
              "of one direction and a backward of the other form a pair, which may run together.",
          .constraints = "D even, N even, N >= 2D",
          .closed_form = "bubble (D/2-1)(F+I-W)",
          .activations = "D+1",
          .source = "DeepSeek-AI, DeepSeek-V3 technical report, 2024",
          .replicas = [](const PipelineShape&) { return std::int64_t{2}; }};
}

}  // namespace chimera
