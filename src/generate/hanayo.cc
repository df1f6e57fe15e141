#include "generate/hanayo.h"

#include <utility>

#include "generate/deepest_first.h"
#include "generate/list_schedule.h"
#include "generate/shape.h"
#include "generate/split_order.h"

namespace chimera {

std::optional<std::string> wave_pattern_refusal(const PipelineShape& shape) { return shape_error(shape, 6); }

Schedule wave_pattern(const char* name, const PipelineShape& shape,
                      const std::function<PatternSlots(std::int64_t depth, std::int64_t worker)>& slots_of) {
  require_shape(name, wave_pattern_refusal(shape));
  constexpr std::int64_t kPeriod = 6;
  const std::int64_t depth = shape.stages;
  Schedule schedule{name, 2 * depth, shape.micro_batches, wave_placement(depth, 2), {}};
  for (std::int64_t r = 0; r < depth; ++r) {
    const PatternSlots slots = slots_of(depth, r);
    const StageId down(r);
    const StageId up(2 * depth - 1 - r);
    std::vector<SlottedOp> ops;
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      const auto add = [&](std::int64_t slot, OpKind kind, StageId stage) {
        ops.push_back({slot + kPeriod * m, {kind, ReplicaId(0), stage, MicroBatchId(m)}});
      };
      add(slots.forward_down, OpKind::Forward, down);
      add(slots.forward_up, OpKind::Forward, up);
      add(slots.gradient_up, OpKind::BackwardInput, up);
      add(slots.gradient_down, OpKind::BackwardInput, down);
    }
    SplitOrder order;
    order.add_unsorted(std::move(ops));
    schedule.workers.push_back(order.take());
  }
  return schedule;
}

namespace {

constexpr const char* kHanayoZb = "hanayo-zb";

std::optional<std::string> hanayo_zb_refusal(const PipelineShape& shape) { return wave_refusal(shape, 3); }

}  // namespace

Schedule hanayo_zb(const PipelineShape& shape) {
  require_shape(kHanayoZb, hanayo_zb_refusal(shape));
  const std::int64_t chunks = 2 * shape.waves;
  return deepest_first({.name = kHanayoZb,
                        .placement = wave_placement(shape.stages, chunks),
                        .replica_of = std::vector<ReplicaId>(static_cast<std::size_t>(shape.micro_batches)),
                        .admitted = shape.stages,
                        .most_held = shape.stages * chunks});
}

Generator hanayo_zb_entry() {
  return {.name = kHanayoZb,
          .generate = hanayo_zb,
          .refusal = hanayo_zb_refusal,
          .rule =
              "Hanayo's waves with B split into I and W. The ready F or I that is farthest along its path runs first, "
              "and W fills free time. At most D micro-batches are in flight.",
          .constraints = "any D, N, w",
          .closed_form = "N(F+I+W) + (D-1)F/2w, F=I=W, D | N",
          .activations = "D",
          .source = "ours",
          .figure = {4, 4},
          .axes = {waves()},
          .stages_a_worker = [](const PipelineShape& shape) { return 2 * shape.waves; }};
}

namespace {

constexpr const char* kHanayo = "hanayo";

std::optional<std::string> hanayo_refusal(const PipelineShape& shape) { return wave_refusal(shape, 2); }

ListTask wave_task(const PipelineShape& shape) {
  return {.name = kHanayo,
          .placement = wave_placement(shape.stages, 2 * shape.waves),
          .replica_of = std::vector<ReplicaId>(static_cast<std::size_t>(shape.micro_batches))};
}

}  // namespace

Schedule hanayo(const PipelineShape& shape) {
  require_shape(kHanayo, hanayo_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t stages = 2 * shape.waves * depth;
  const auto older = [](const Op& op, std::int64_t) { return op.kind == OpKind::Forward ? 1 : 0; };
  // D micro-batches together: all go through the workers once before the first comes back.
  const auto grouped = [&](const Op& op, std::int64_t age) -> std::int64_t {
    if (op.kind != OpKind::Forward) return 0;
    const std::int64_t pass = age / depth * (stages / depth) + op.stage.value() / depth;
    return 1 + pass * depth + age % depth;
  };
  ListTask by_worker = wave_task(shape);
  by_worker.worker_credits.assign(static_cast<std::size_t>(depth), stages);
  ListResult best = list_schedule(by_worker, older);
  if (shape.micro_batches > depth) {
    ListTask by_stage = wave_task(shape);
    by_stage.stage_credits.assign(1, std::vector<std::int64_t>(static_cast<std::size_t>(stages), depth));
    best = better(std::move(best), list_schedule(by_stage, older));
    best = better(std::move(best), list_schedule(by_stage, grouped));
  }
  return std::move(best.schedule);
}

Generator hanayo_entry() {
  return {.name = kHanayo,
          .generate = hanayo,
          .refusal = hanayo_refusal,
          .rule =
              "The model has 2wD stages, placed down and up the workers in w waves. Ready backwards run first, then "
              "older micro-batches. At most D stage units are in flight.",
          .constraints = "any D, N, w",
          .closed_form = "ratio ~(2D-2)/(3wD+D-1), N=D",
          .activations = "2wD chunks",
          .source = "Liu et al., SC'23",
          .axes = {waves()},
          .stages_a_worker = [](const PipelineShape& shape) { return 2 * shape.waves; }};
}

}  // namespace chimera
