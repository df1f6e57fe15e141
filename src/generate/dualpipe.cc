// DeepSeek-AI's schedules, in which a forward and a backward of different micro-batches run as a pair (Pairs in
// schedule/schedule.h), so that one computes while the other communicates.

#include <fmt/format.h>

#include "generate/entries.h"
#include "generate/shape.h"
#include "generate/two_chunks.h"

namespace chimera {
namespace {

/// Returns the ops of a worker on which two streams of n micro-batches, n >= 2H, cross 2H stages from opposite ends.
/// `near` is its stage at distance h < H from its stream's entrance, `far` the other stream's, at distance 2H-1-h. In
/// the middle, each forward forms a pair with the other stream's backward. Only backwards at the ends are split.
/// Source: the step list of DeepSeek-AI's DualPipe.
std::vector<Op> dualpipe_order(const Chunk& near, const Chunk& far, std::int64_t h, std::int64_t H) {
  using enum ChunkStep;
  TwoChunks order(near, far);
  const std::int64_t inward = H - h - 1;  // Stages from here to the middle
  // The first forward of the other stream arrives 2 inward + 1 slots after the first of its own stream.
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

// Fewer than 2D micro-batches do not fill both directions, and the published rule has no order for them.
std::optional<std::string> dualpipev_refusal(const PipelineShape& shape) {
  if (auto refused = shape_error(shape, 6)) return refused;
  if (shape.micro_batches >= 2 * shape.stages) return std::nullopt;
  return fmt::format("--micro-batches must be at least 2D = {}, not {}", 2 * shape.stages, shape.micro_batches);
}

std::optional<std::string> dualpipe_refusal(const PipelineShape& shape) {
  if (auto refused = odd_stages_error(shape.stages, "its workers mirror each other in pairs")) return refused;
  if (auto refused = shape_error(shape, 3)) return refused;
  if (shape.micro_batches < 2 * shape.stages || shape.micro_batches % 2 != 0)
    return fmt::format("--micro-batches must be at least 2D = {} and even, not {}", 2 * shape.stages,
                       shape.micro_batches);
  return std::nullopt;
}

Schedule dualpipev(const PipelineShape& shape) {
  const std::int64_t depth = shape.stages;
  return ordered_schedule(shape, wave_placement(depth, 2), [&](std::int64_t w) {
    return dualpipe_order({.stage = StageId(w), .count = shape.micro_batches},
                          {.stage = StageId(2 * depth - 1 - w), .count = shape.micro_batches}, w, depth);
  });
}

Schedule dualpipe(const PipelineShape& shape) {
  const std::int64_t depth = shape.stages;
  const std::int64_t half = shape.micro_batches / 2;
  return ordered_schedule(shape, opposite_placement(depth), [&](std::int64_t w) {
    const Chunk down_chunk{.replica = ReplicaId(0), .stage = StageId(w), .count = half};
    const Chunk up_chunk{.replica = ReplicaId(1), .stage = StageId(depth - 1 - w), .first = half, .count = half};
    // The second half of the workers is the mirror image of the first half: there, the stream up is near its entrance.
    return w < depth / 2 ? dualpipe_order(down_chunk, up_chunk, w, depth / 2)
                         : dualpipe_order(up_chunk, down_chunk, depth - 1 - w, depth / 2);
  });
}

}  // namespace

Generator dualpipev_entry() {
  return {.name = "dualpipev",
          .make = dualpipev,
          .find_shape_error = dualpipev_refusal,
          .rule =
              "DualPipe on 2D workers folded at its middle (Sea AI Lab's \"cut in half\"): one replica, with stages r "
              "and 2D-1-r on worker r.",
          .constraints = "N >= 2D",
          .closed_form = "bubble (D-1)(F+I-W)/2",
          .activations = "2D+1 halves",
          .source = "DeepSeek-AI, DualPipe, 2025",
          .stages_per_worker = two_stages};
}

Generator dualpipe_entry() {
  return {.name = "dualpipe",
          .make = dualpipe,
          .find_shape_error = dualpipe_refusal,
          .rule =
              "Two replicas in opposite directions with N/2 micro-batches each, fed from both ends. In the middle, a "
              "forward of one direction and a backward of the other form a pair, which may run together; only "
              "backwards at the ends of a step are split. The bubble holds for pairs in order and W ≤ I ≤ F ≤ "
              "I+W. If a pair takes F&B together and F = I ≥ W, the first and last worker wait (D/2-1)(F&B+B-3W), "
              "as published, less (D/2-2)(F+B-F&B).",
          .constraints = "D even, N even, N >= 2D",
          .closed_form = "bubble (D/2-1)(F+I-W)",
          .activations = "D+1",
          .source = "DeepSeek-AI, DeepSeek-V3 technical report, 2024",
          .replicas = [](const PipelineShape&) { return std::int64_t{2}; }};
}

}  // namespace chimera
