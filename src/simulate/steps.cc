#include "simulate/steps.h"

#include "core/reject.h"

namespace chimera {
std::int64_t micro_batches_per_step(const Schedule& schedule, std::int64_t steps) {
  if (steps < 1 || schedule.micro_batches % steps != 0) {
    reject("{} micro-batches of '{}' cannot be divided into {} equal steps", schedule.micro_batches, schedule.name,
           steps);
  }
  return schedule.micro_batches / steps;
}

std::vector<std::vector<StepRange>> step_ranges(const Schedule& schedule, std::int64_t steps) {
  const std::int64_t per_step = micro_batches_per_step(schedule, steps);
  std::vector<std::vector<StepRange>> ranges(static_cast<std::size_t>(steps),
                                             std::vector<StepRange>(schedule.workers.size()));
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    const auto& ops = schedule.workers[w];
    // The ops of a step are consecutive. An op of another step in between ends a range early, and some op is left over.
    std::size_t next = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      StepRange& range = ranges[static_cast<std::size_t>(step)][w];
      range.begin = next;
      // A single step has all ops, also those with ids that only the check refuses.
      while (next < ops.size() && (steps == 1 || ops[next].micro_batch.value() / per_step == step)) ++next;
      range.end = next;
    }
    if (next == ops.size()) continue;
    throw ScheduleError(
        fmt::format("schedule '{}': worker {} runs op {} ({}) after an op of another step; a synchronous schedule ends "
                    "a step before it starts the next",
                    schedule.name, w, next, to_text(ops[next], schedule.slices)));
  }
  return ranges;
}

Schedule extract_step(const Schedule& schedule, std::int64_t per_step, std::int64_t step,
                      const std::vector<StepRange>& ranges) {
  // Without updates: only synchronous schedules are divided into steps.
  Schedule part{.name = schedule.name,
                .stages = schedule.stages,
                .micro_batches = per_step,
                .placement = schedule.placement,
                .workers = {},
                .micro_batch_scale = schedule.micro_batch_scale,
                .slices = schedule.slices};
  for (std::size_t w = 0; w < ranges.size(); ++w) {
    const auto begin = schedule.workers[w].begin();
    auto& ops = part.workers.emplace_back(begin + static_cast<std::ptrdiff_t>(ranges[w].begin),
                                          begin + static_cast<std::ptrdiff_t>(ranges[w].end));
    for (Op& op : ops) op.micro_batch = MicroBatchId(op.micro_batch.value() - step * per_step);
  }
  return part;
}

}  // namespace chimera
