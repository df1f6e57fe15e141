// docs/slices.md proves that these orders reach the lower bound, and has the letters of this file: d (distance_) and n
// (ahead_). A phase is a unit's forwards and input gradients; with_weight_gradients() then puts them into the free
// slots.

#include "generate/sliced_units.h"

#include <algorithm>
#include <utility>

#include "generate/chimera_placement.h"
#include "generate/shape.h"

namespace chimera {
namespace {

std::int64_t whole_unit(const PipelineShape& shape) {
  const std::int64_t distance = shape.stages / shape.pipelines;
  return (distance + shape.slices - 1) / shape.slices;
}

/// Forwards and input gradients of a unit, the same for each pipeline. In windows of slots, a stage runs them in every
/// second slot.
struct Phase {
  std::int64_t begin = 0;
  std::int64_t first_forward = 0;  // Slice, counted over the micro-batches of the pipeline
  std::int64_t forwards = 0;
  std::int64_t first_gradient = 0;
  std::int64_t gradients = 0;
  std::int64_t forward_window = 0;
  std::int64_t gradient_window = 0;
  std::int64_t gradient_delay = 0;  // Slots from `begin` to the first input gradient
  std::int64_t end = 0;  // Slot after the input gradients; `begin` of the next unit if no weight gradient is left
};

// All pipelines have the same phases, in slots of alternate parity for the two directions, so no two ops of a worker
// collide. A phase starts so early that the weight gradients of the phase before just fill its free slots.
class SlicedUnits {
 public:
  explicit SlicedUnits(const PipelineShape& shape) : shape_(shape) {
    const std::int64_t each = shape.micro_batches / shape.pipelines;
    const std::int64_t unit = whole_unit(shape);
    const std::int64_t units = (each + unit - 1) / unit;
    for (std::int64_t u = 0; u < units; ++u) {
      // Units have equally many micro-batches, but for one more in the last ones.
      add_phase((each / units + (u >= units - each % units ? 1 : 0)) * shape.slices);
    }
  }

  [[nodiscard]] std::vector<Op> order(std::int64_t worker) const {
    std::vector<SlottedOp> slotted;
    for (std::int64_t r = 0; r < shape_.pipelines; ++r) {
      for (std::int64_t c = 0; c < shape_.chunks; ++c)
        for (const Phase& phase : phases_) add_ops(phase, ReplicaId(r), stage_on(worker, r, c, shape_), slotted);
    }
    return with_weight_gradients(std::move(slotted));
  }

 private:
  // A pipeline keeps n slices ahead of its input gradients, so the forwards of a phase replace the gradients of the
  // phase before.
  void add_phase(std::int64_t gradients) {
    const Phase before = phases_.empty() ? Phase{} : phases_.back();
    Phase phase{.first_forward = before.first_forward + before.forwards,
                .first_gradient = before.first_gradient + before.gradients,
                .gradients = gradients};
    const std::int64_t all = shape_.micro_batches / shape_.pipelines * shape_.slices;
    const std::int64_t begun = phase.first_forward - phase.first_gradient;
    phase.forwards = std::min(all, phase.first_gradient + ahead_) - phase.first_forward;
    phase.forward_window = 2 * std::max(distance_, phase.forwards);
    phase.gradient_window = 2 * std::max(distance_, gradients);
    if (phase.forwards > 0) phase.gradient_delay = (windows_ - 1) * phase.forward_window + 2 * (ahead_ - begun);
    const std::int64_t length = phase.gradient_delay + (windows_ - 1) * phase.gradient_window + 2 * gradients;
    const std::int64_t free = length - 2 * windows_ * (phase.forwards + gradients);
    // The weight gradients of the unit before fill the slots up to `begin` and the free slots of this phase.
    phase.begin = before.end + 2 * windows_ * before.gradients - free;
    phase.end = phase.begin + length;
    phases_.push_back(phase);
  }

  void add_ops(const Phase& phase, ReplicaId replica, StageId stage, std::vector<SlottedOp>& ops) const {
    const std::int64_t place = stage.value() % (2 * distance_);
    const std::int64_t window = stage.value() / (2 * distance_);
    const std::int64_t forward = phase.begin + place + window * phase.forward_window;
    for (std::int64_t i = 0; i < phase.forwards; ++i)
      ops.push_back({forward + 2 * i, slice_of(OpKind::Forward, replica, stage, phase.first_forward + i)});
    const std::int64_t backward = phase.begin + phase.gradient_delay + (2 * distance_ - 1 - place) +
                                  (windows_ - 1 - window) * phase.gradient_window;
    for (std::int64_t i = 0; i < phase.gradients; ++i)
      ops.push_back({backward + 2 * i, slice_of(OpKind::BackwardInput, replica, stage, phase.first_gradient + i)});
  }

  [[nodiscard]] Op slice_of(OpKind kind, ReplicaId replica, StageId stage, std::int64_t i) const {
    Op op = sliced_op(kind, replica, stage, i, shape_.slices);
    // Of each D micro-batches, a pipeline gets d in a row: micro-batch i of the pipeline is in the (i / d)-th D.
    const std::int64_t first = op.micro_batch.value() / distance_ * shape_.stages;
    const std::int64_t count = std::min(shape_.stages, shape_.micro_batches - first);
    const MicroBatchRange share = micro_batches_of_pipeline(replica.value(), shape_.pipelines, first, count);
    op.micro_batch = MicroBatchId(share.first + op.micro_batch.value() % distance_);
    return op;
  }

  const PipelineShape& shape_;
  std::int64_t distance_ =
      shape_.stages / shape_.pipelines;  // d: workers between neighboring pipelines of all directions
  std::int64_t windows_ =
      shape_.chunks * shape_.pipelines / 2;             // Stages of a worker in each of the two classes of slots
  std::int64_t ahead_ = distance_ + shape_.slices - 1;  // n
  std::vector<Phase> phases_;
};

}  // namespace

std::int64_t sliced_credits(const PipelineShape& shape) {
  return shape.chunks * (shape.stages + shape.pipelines * (shape.slices - 1));
}

bool has_sliced_units(const PipelineShape& shape) {
  if (shape.micro_batches < shape.stages || shape.micro_batches % shape.pipelines != 0) return false;
  const bool one_window = shape.pipelines == 2 && shape.chunks == 1;
  return one_window || shape.micro_batches / shape.pipelines % whole_unit(shape) == 0;
}

ListRank older_then_deeper(const PipelineShape& shape) {
  const std::int64_t stages = chimera_stages(shape);
  return [stages, slices = shape.slices](const Op& op, std::int64_t age) -> std::int64_t {
    if (op.kind == OpKind::Forward) return age / slices * stages + op.stage.value();
    constexpr std::int64_t kAfterForwards = 1'000'000'000'000;
    return kAfterForwards + stages - op.stage.value();
  };
}

Schedule sliced_units(const PipelineShape& shape) {
  const SlicedUnits units(shape);
  Schedule schedule = ordered_schedule(shape, chimera_placement(shape), [&](std::int64_t w) { return units.order(w); });
  schedule.slices = shape.slices;
  return schedule;
}

}  // namespace chimera
