// Chimera's two directions with split backward: input gradients take the slots of Chimera's backwards, and weight
// gradients fill the bubbles. Of the schedules in this room with at most D activations on a worker, it has the shortest
// makespan at equal op times.

#include <algorithm>
#include <utility>

#include "generate/chimera_placement.h"
#include "generate/entries.h"
#include "generate/list_schedule.h"
#include "generate/shape.h"
#include "generate/sliced_units.h"

namespace chimera {
namespace {

std::optional<std::string> chimera_zb_refusal(const PipelineShape& shape) { return chimera_shape_error(shape, 3); }

bool has_whole_units(const PipelineShape& shape) { return shape.micro_batches % shape.stages == 0; }

std::int64_t forward_slot(StageId stage, std::int64_t m) { return stage.value() + 2 * m; }
std::int64_t backward_slot(const PipelineShape& shape, StageId stage, std::int64_t m) {
  return 2 * chimera_stages(shape) - 1 - stage.value() + 2 * m;
}

void add_unit(const PipelineShape& shape, std::int64_t worker, std::int64_t first, std::vector<SlottedOp>& ops) {
  const std::int64_t count = std::min(shape.stages, shape.micro_batches - first);
  // A worker runs F, I and W of each micro-batch at each chunk, so this distance between units leaves just enough slots
  // for all W.
  const std::int64_t begin = 3 * shape.chunks * first;
  for (std::int64_t r = 0; r < shape.pipelines; ++r) {
    const MicroBatchRange share = micro_batches_of_pipeline(r, shape.pipelines, first, count);
    for (std::int64_t c = 0; c < shape.chunks; ++c) {
      const StageId stage = stage_on(worker, r, c, shape);
      for (std::int64_t m = 0; m < share.count; ++m) {
        const MicroBatchId id(share.first + m);
        ops.push_back({begin + forward_slot(stage, m), {OpKind::Forward, ReplicaId(r), stage, id}});
        ops.push_back({begin + backward_slot(shape, stage, m), {OpKind::BackwardInput, ReplicaId(r), stage, id}});
      }
    }
  }
}

Schedule by_slots(const PipelineShape& shape) {
  return ordered_schedule(shape, chimera_placement(shape), [&](std::int64_t w) {
    std::vector<SlottedOp> ops;
    for (std::int64_t first = 0; first < shape.micro_batches; first += shape.stages) add_unit(shape, w, first, ops);
    return with_weight_gradients(std::move(ops));
  });
}

Schedule by_depth(const PipelineShape& shape) {
  constexpr std::int64_t kOpTicks = 100;  // Messages of v ticks take little time, but enough to order what they delay
  return deepest_first({.placement = chimera_placement(shape),
                        .replica_of = assign_to_pipelines(shape),
                        .op_ticks = kOpTicks,
                        .latency_ticks = shape.chunks},
                       {.admitted = shape.stages / shape.pipelines, .most_held = chimera_stages(shape)});
}

// I runs first because the neighbor waits for it, F next, and W fills the rest.
/// I before F before W; within I and F the smaller `slot` first.
template <class Slot>
ListRank by_kind_and_slot(Slot slot) {
  return [slot](const Op& op, std::int64_t age) -> std::int64_t {
    constexpr std::int64_t kAfterAnySlot = 1'000'000'000'000;
    if (op.kind == OpKind::BackwardWeight) return 2 * kAfterAnySlot;
    return (op.kind == OpKind::Forward ? kAfterAnySlot : 0) + slot(op, age);
  };
}

/// Returns the best of three greedy orders; each is best for some shapes.
Schedule best_greedy(const PipelineShape& shape) {
  const std::int64_t stages = chimera_stages(shape);
  ListTask task{
      .placement = chimera_placement(shape), .replica_of = assign_to_pipelines(shape), .split_backward = true};
  const auto with_credits = [&](std::int64_t units, const ListRank& rank) {
    task.worker_credits.assign(static_cast<std::size_t>(shape.stages), units * shape.chunks);
    return list_schedule(task, rank);
  };
  // older micro-batch first, then lower stage
  const auto older = by_kind_and_slot(
      [&](const Op& op, std::int64_t age) { return op.kind == OpKind::Forward ? age * stages + op.stage.value() : 0; });
  // forwards as if all micro-batches were in one unit
  const auto one_unit = by_kind_and_slot(
      [](const Op& op, std::int64_t age) { return op.kind == OpKind::Forward ? forward_slot(op.stage, age) : 0; });
  // slots of by_slots()
  const auto units = by_kind_and_slot([&](const Op& op, std::int64_t age) {
    const std::int64_t share_of_unit = shape.stages / shape.pipelines;
    const std::int64_t begin = 3 * stages * (age / share_of_unit);
    const std::int64_t m = age % share_of_unit;
    return begin + (op.kind == OpKind::Forward ? forward_slot(op.stage, m) : backward_slot(shape, op.stage, m));
  });
  ListResult best = with_credits(shape.stages, older);
  best = pick_better(std::move(best), with_credits(shape.stages + 1, one_unit));
  best = pick_better(std::move(best), with_credits(shape.stages + 1, units));
  return std::move(best.schedule);
}

/// Greedy order of slices if a message takes `latency` slots, with as few activations as reach the lower bound, at most
/// `spare` slices of a worker's share more than sliced_units() holds.
Schedule greedy_slices(const PipelineShape& shape, std::int64_t latency, std::int64_t spare) {
  ListTask task{.placement = chimera_placement(shape),
                .replica_of = assign_to_pipelines(shape),
                .slices = shape.slices,
                .split_backward = true,
                .latency_ticks = latency};
  // I before F before W; forwards as if a pipeline ran one slice every 2f slots
  const auto in_turn = by_kind_and_slot([&](const Op& op, std::int64_t age) {
    return op.kind == OpKind::Forward ? op.stage.value() + shape.pipelines * age : 0;
  });
  const std::int64_t least = sliced_credits(shape);
  const std::int64_t busy = 3 * shape.micro_batches * shape.slices * shape.chunks;
  // The worker farthest from an entrance waits for D/2f - 1 forwards and their messages.
  const std::int64_t idle = (shape.stages / shape.pipelines - 1) * (1 + latency);
  return with_fewest_credits(std::move(task), in_turn, {least, least + spare * shape.chunks}, busy + idle).schedule;
}

Schedule of_depth(const PipelineShape& shape) {
  return shape.slices > 1 ? greedy_slices(shape, 1, std::max(2 * shape.stages, shape.slices)) : by_depth(shape);
}

Schedule of_slots(const PipelineShape& shape) {
  if (shape.slices > 1) return has_sliced_units(shape) ? sliced_units(shape) : greedy_slices(shape, 0, shape.slices);
  return has_whole_units(shape) || shape.micro_batches < shape.stages ? by_slots(shape) : best_greedy(shape);
}

Schedule chimera_zb(const PipelineShape& shape) {
  const bool in_order_of_depth = shape.order == OpOrder::Deepest || (shape.order == OpOrder::Auto && shape.chunks > 1 &&
                                                                     shape.slices == 1 && has_whole_units(shape));
  Schedule schedule = in_order_of_depth ? of_depth(shape) : of_slots(shape);
  schedule.order = in_order_of_depth ? OpOrder::Deepest : OpOrder::Slots;
  schedule.late_forwards = shape.slices == 1;
  return schedule;
}

}  // namespace

Generator chimera_zb_entry() {
  SupportedAxis order =
      supported(Axis::Order, static_cast<std::int64_t>(OpOrder::Auto),
                {static_cast<std::int64_t>(OpOrder::Slots), static_cast<std::int64_t>(OpOrder::Deepest)});
  order.by_costs = true;
  return {.name = "chimera-zb",
          .make = chimera_zb,
          .find_shape_error = chimera_zb_refusal,
          .rule =
              "Chimera's placement with split backward, in one of two orders. *Slots*: units of D micro-batches in "
              "Chimera's slots, with I in place of B, every 3vD slots; weight gradients fill the free slots, oldest "
              "first, also of the next unit. If D does not divide N > D, it is the best of three greedy orders. "
              "*Deepest*: a worker runs the micro-batch that is farthest along, which suits latency and unequal times. "
              "*Auto* is deepest for v > 1 and D | N, else slots. `docs/chimera_zb.md` proves that at F = I = W no "
              "order on this placement is faster; `docs/slices.md` does the same for k slices.",
          .constraints = "D even, any N, v, k, f divides D/2",
          .closed_form = "N(F+I+W)+(D/2f-1)F/vk, F=I=W, D|N",
          .activations = "2f + (D-2f)/k (any N: +1)",
          .source = "ours",
          .figure = {.stages = 4, .micro_batches = 4},
          .axes = {bidirectional_pipelines(), bidirectional_chunks(), order, slices()},
          .stages_per_worker = [](const PipelineShape& shape) { return shape.chunks; },
          .replicas = [](const PipelineShape& shape) { return shape.pipelines; }};
}

}  // namespace chimera
