#include "generate/chimera_zb.h"

#include <algorithm>
#include <utility>

#include "generate/chimera_placement.h"
#include "generate/list_schedule.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kChimeraZb = "chimera-zb";

std::optional<std::string> chimera_zb_refusal(const PipelineShape& shape) {
  return chimera_placement_refusal(shape, 3);
}

struct HalfSlotOp {
  std::int64_t slot;
  Op op;
};

std::int64_t forward_slot(StageId stage, std::int64_t m) { return stage.value() + 2 * m; }
std::int64_t backward_slot(const PipelineShape& shape, StageId stage, std::int64_t m) {
  return 2 * shape.stages - 1 - stage.value() + 2 * m;
}

/// F and I of the unit that begins with micro-batch `first`, by slot.
void lay_out_unit(const PipelineShape& shape, std::int64_t worker, std::int64_t first, std::vector<HalfSlotOp>& ops) {
  ops.clear();
  const std::int64_t count = std::min(shape.stages, shape.micro_batches - first);
  const std::int64_t begin = 3 * first;
  for (std::int64_t r = 0; r < shape.pipelines; ++r) {
    const StageId stage = stage_on(worker, r, shape.stages, shape.pipelines / 2);
    const Share share = share_of(r, shape.pipelines, first, count);
    for (std::int64_t m = 0; m < share.count; ++m) {
      const MicroBatchId id(share.first + m);
      ops.push_back({begin + forward_slot(stage, m), {OpKind::Forward, ReplicaId(r), stage, id}});
      ops.push_back({begin + backward_slot(shape, stage, m), {OpKind::BackwardInput, ReplicaId(r), stage, id}});
    }
  }
  std::sort(ops.begin(), ops.end(), [](const HalfSlotOp& a, const HalfSlotOp& b) { return a.slot < b.slot; });
}

/// The order of one worker: F and I in their slots, W in free ones.
std::vector<Op> order_by_slots(const PipelineShape& shape, std::int64_t worker) {
  std::vector<Op> order;
  order.reserve(static_cast<std::size_t>(3 * shape.micro_batches));
  std::vector<HalfSlotOp> unit;
  std::vector<Op> weights;  // in the order of their I
  std::size_t filled = 0;   // of the weights
  const auto fill = [&](std::int64_t free_slots) {
    for (; free_slots > 0 && filled < weights.size(); --free_slots) order.push_back(weights[filled++]);
  };
  std::int64_t slot = 0;
  for (std::int64_t first = 0; first < shape.micro_batches; first += shape.stages) {
    lay_out_unit(shape, worker, first, unit);
    for (const HalfSlotOp& entry : unit) {
      fill(entry.slot - slot);
      slot = entry.slot + 1;
      order.push_back(entry.op);
      if (entry.op.kind == OpKind::Forward) continue;
      weights.push_back(entry.op);
      weights.back().kind = OpKind::BackwardWeight;
    }
  }
  fill(shape.micro_batches);
  return order;
}

Schedule by_slots(const PipelineShape& shape) {
  Schedule schedule{
      kChimeraZb, shape.stages, shape.micro_batches, chimera_placement(shape.stages, shape.pipelines / 2), {}};
  for (std::int64_t w = 0; w < shape.stages; ++w) schedule.workers.push_back(order_by_slots(shape, w));
  return schedule;
}

/// I before F before W; of F, and of I, the one with the smaller `slot` first.
template <class Slot>
ListRank by_kind_and_slot(Slot slot) {
  return [slot](const Op& op, std::int64_t age) -> std::int64_t {
    constexpr std::int64_t kAfterAnySlot = 1'000'000'000'000;
    switch (op.kind) {
      case OpKind::BackwardInput: return slot(op, age);
      case OpKind::Forward: return kAfterAnySlot + slot(op, age);
      default: return 2 * kAfterAnySlot;
    }
  };
}

ListTask task_of(const PipelineShape& shape) {
  ListTask task{.name = kChimeraZb,
                .placement = chimera_placement(shape.stages, shape.pipelines / 2),
                .split_backward = true,
                .durations = {{.forward = 1, .input_gradient = 1, .weight_gradient = 1}}};
  for (std::int64_t first = 0; first < shape.micro_batches; first += shape.stages) {
    const std::int64_t count = std::min(shape.stages, shape.micro_batches - first);
    for (std::int64_t r = 0; r < shape.pipelines; ++r) {
      const Share share = share_of(r, shape.pipelines, first, count);
      task.replica_of.insert(task.replica_of.end(), static_cast<std::size_t>(share.count), ReplicaId(r));
    }
  }
  return task;
}

/// The best of three greedy orders. Each beats the others at some shapes.
Schedule best_greedy(const PipelineShape& shape) {
  ListTask task = task_of(shape);
  const auto with_credits = [&](std::int64_t credits, const ListRank& rank) {
    task.worker_credits.assign(static_cast<std::size_t>(shape.stages), credits);
    return list_schedule(task, rank);
  };
  // The older micro-batch first, then the one that has come less far.
  const auto older = by_kind_and_slot([&](const Op& op, std::int64_t age) {
    return op.kind == OpKind::Forward ? age * shape.stages + op.stage.value() : 0;
  });
  // Forwards as if all micro-batches were of one unit.
  const auto one_unit = by_kind_and_slot(
      [](const Op& op, std::int64_t age) { return op.kind == OpKind::Forward ? forward_slot(op.stage, age) : 0; });
  // The slots of by_slots().
  const auto units = by_kind_and_slot([&](const Op& op, std::int64_t age) {
    const std::int64_t share_of_unit = shape.stages / shape.pipelines;
    const std::int64_t begin = 3 * shape.stages * (age / share_of_unit);
    const std::int64_t m = age % share_of_unit;
    return begin + (op.kind == OpKind::Forward ? forward_slot(op.stage, m) : backward_slot(shape, op.stage, m));
  });
  ListResult best = with_credits(shape.stages, older);
  best = better(std::move(best), with_credits(shape.stages + 1, one_unit));
  best = better(std::move(best), with_credits(shape.stages + 1, units));
  return std::move(best.schedule);
}

}  // namespace

Schedule chimera_zb(const PipelineShape& shape) {
  require_shape(kChimeraZb, chimera_zb_refusal(shape));
  const bool whole_units = shape.micro_batches % shape.stages == 0;
  return whole_units || shape.micro_batches < shape.stages ? by_slots(shape) : best_greedy(shape);
}

Generator chimera_zb_entry() {
  return {.name = kChimeraZb,
          .generate = chimera_zb,
          .refusal = chimera_zb_refusal,
          .rule =
              "Chimera's placement with split backward: `docs/chimera_zb.md` has the rule and why no order on this "
              "placement is faster.",
          .constraints = "D even, any N, f divides D/2",
          .closed_form = "N(F+I+W)+(D/2f-1)F, F=I=W, D|N",
          .activations = "D (any N: D+1)",
          .source = "ours",
          .figure = {4, 4},
          .axes = {bidirectional_pipelines()},
          .replicas = [](const PipelineShape& shape) { return shape.pipelines; },
          .late_forwards = true};
}

}  // namespace chimera
