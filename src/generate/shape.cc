#include "generate/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "generate/generator.h"

namespace chimera {

// Limits come before any product of counts is formed, so products cannot overflow.
std::optional<std::string> shape_error(const PipelineShape& shape, std::int64_t ops_each) {
  const auto below = [](const std::string& what, std::int64_t least, std::int64_t value) {
    return fmt::format("{} must be at least {}, not {}", what, least, value);
  };
  if (shape.stages < 1) return below("--stages", 1, shape.stages);
  if (shape.micro_batches < 1) return below("--micro-batches", 1, shape.micro_batches);
  for (const ShapeAxis& axis : shape_axes())
    if (axis.get(shape) < axis.least) return below(axis.flag(), axis.least, axis.get(shape));
  if (shape.slices > kMaxSlices) return fmt::format("--slices must be at most {}, not {}", kMaxSlices, shape.slices);
  if (shape.slices > 1) ops_each *= shape.slices;
  if (shape.stages > kMaxOps / ops_each / shape.micro_batches)
    return fmt::format("{} stages times {} micro-batches are more than {} ops; use fewer of either", shape.stages,
                       shape.micro_batches, kMaxOps);
  return std::nullopt;
}

// Zero and negative counts are refused here, too, with both conditions in one message.
std::optional<std::string> odd_stages_error(std::int64_t stages, const char* reason) {
  if (stages > 0 && stages % 2 == 0) return std::nullopt;
  return fmt::format("--stages must be {}, not {} ({})", stages < 1 ? "even and at least 2" : "even", stages, reason);
}

std::optional<std::string> loop_shape_error(const PipelineShape& shape, std::int64_t ops_each) {
  if (auto refused = shape_error(shape, ops_each)) return refused;
  if (shape.chunks <= kMaxOps / ops_each / (shape.stages * shape.micro_batches)) return std::nullopt;
  return fmt::format("{} workers times {} chunks times {} micro-batches are more than {} ops; use fewer", shape.stages,
                     shape.chunks, shape.micro_batches, kMaxOps);
}

// `stages` of a shape counts workers. The schedule has as many stages as the placement, a multiple if workers hold
// several.
Schedule empty_schedule(const PipelineShape& shape, Placement placement) {
  Schedule schedule{.micro_batches = shape.micro_batches, .placement = std::move(placement)};
  schedule.stages = std::ssize(schedule.placement.worker_of.front());
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  return schedule;
}

// The i-th op of a stage: forwards take the slices of a micro-batch in order, backwards in reverse, because a slice
// needs the gradients of the keys and values that later slices have read.
Op sliced_op(OpKind kind, ReplicaId replica, StageId stage, std::int64_t i, std::int64_t slices) {
  if (slices == 1) return {kind, replica, stage, MicroBatchId(i)};  // Without two divisions for each op
  Op op{kind, replica, stage, MicroBatchId(i / slices)};
  const std::int64_t slice = kind == OpKind::Forward ? i % slices : slices - 1 - i % slices;
  op.slice = static_cast<std::int16_t>(slice);
  return op;
}

SupportedAxis supported(Axis axis, std::int64_t usual, std::vector<std::int64_t> planned) {
  return {.axis = axis, .usual = usual, .planned = [planned = std::move(planned)](const PipelineShape&) {
            return planned;
          }};
}

SupportedAxis slices() { return supported(Axis::Slices, 1, {1}); }

Placement opposite_placement(std::int64_t stages) {
  return placement_by(2, stages, [&](std::int64_t r, std::int64_t s) { return r == 0 ? s : stages - 1 - s; });
}

Placement loop_placement(std::int64_t workers, std::int64_t chunks) {
  return placement_by(1, workers * chunks, [&](std::int64_t, std::int64_t s) { return s % workers; });
}

Placement rotated_placement(std::int64_t stages, std::int64_t replicas) {
  return placement_by(replicas, stages,
                      [&](std::int64_t r, std::int64_t s) { return (r * (stages / replicas) + s) % stages; });
}

std::int64_t wave_worker(std::int64_t stage, std::int64_t workers) {
  const std::int64_t step = stage % (2 * workers);
  return std::min(step, 2 * workers - 1 - step);
}

std::int64_t wave_stage(std::int64_t worker, std::int64_t chunk, std::int64_t workers) {
  return chunk * workers + (chunk % 2 == 0 ? worker : workers - 1 - worker);
}

Placement wave_placement(std::int64_t workers, std::int64_t chunks) {
  return placement_by(1, workers * chunks, [&](std::int64_t, std::int64_t s) { return wave_worker(s, workers); });
}

std::vector<Op> with_weight_gradients(std::vector<SlottedOp> entries) {
  std::ranges::sort(entries, {}, &SlottedOp::slot);
  std::vector<Op> order;
  std::vector<Op> weights;  // In the order of their I
  std::size_t filled = 0;   // Number of weights in `order`
  // A free slot without a pending W remains a bubble, which a list of ops does not show.
  const auto fill = [&](std::int64_t free_slots) {
    for (; free_slots > 0 && filled < weights.size(); --free_slots) order.push_back(weights[filled++]);
  };
  std::int64_t next = 0;  // First slot after the last op
  for (const auto& [slot, op] : entries) {
    fill(slot - next);
    next = slot + 1;
    order.push_back(op);
    if (op.kind == OpKind::Forward) continue;
    weights.push_back(op);
    weights.back().kind = OpKind::BackwardWeight;
  }
  fill(std::ssize(weights));
  return order;
}

}  // namespace chimera
