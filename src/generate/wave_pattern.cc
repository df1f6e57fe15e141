#include "generate/wave_pattern.h"

#include "generate/shape.h"
#include "generate/split_order.h"

namespace chimera {

std::optional<std::string> wave_pattern_refusal(const PipelineShape& shape) { return insane(shape, 6); }

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

}  // namespace chimera
