#include "simulate/steps.h"

#include <fmt/format.h>

#include "core/error.h"

namespace chimera {
namespace {

std::vector<StepRange> next_ranges(const Schedule& schedule, std::int64_t per_step, std::int64_t step,
                                   const std::vector<StepRange>& before) {
  std::vector<StepRange> ranges;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    const auto& ops = schedule.workers[w];
    StepRange range{before[w].end, before[w].end};
    while (range.end < ops.size() && ops[range.end].micro_batch.value() / per_step == step) ++range.end;
    ranges.push_back(range);
  }
  return ranges;
}

void require_whole(const Schedule& schedule, const std::vector<StepRange>& last) {
  for (std::size_t w = 0; w < last.size(); ++w) {
    if (last[w].end == schedule.workers[w].size()) continue;
    throw ScheduleError(
        fmt::format("schedule '{}': worker {} runs op {} ({}) after an op of another step; a synchronous schedule ends "
                    "a step before it starts the next",
                    schedule.name, w, last[w].end, to_text(schedule.workers[w][last[w].end], schedule.slices)));
  }
}

}  // namespace

std::vector<StepRange> whole_range(const Schedule& schedule) {
  std::vector<StepRange> ranges;
  for (const auto& ops : schedule.workers) ranges.push_back({0, ops.size()});
  return ranges;
}

std::int64_t micro_batches_a_step(const Schedule& schedule, std::int64_t steps) {
  if (steps < 1 || schedule.micro_batches % steps != 0) {
    throw ConfigError(fmt::format("{} micro-batches of '{}' cannot be divided into {} equal steps",
                                  schedule.micro_batches, schedule.name, steps));
  }
  return schedule.micro_batches / steps;
}

std::vector<std::vector<StepRange>> step_ranges(const Schedule& schedule, std::int64_t steps) {
  const std::int64_t per_step = micro_batches_a_step(schedule, steps);
  if (steps == 1) return {whole_range(schedule)};
  std::vector<std::vector<StepRange>> ranges;
  std::vector<StepRange> last(schedule.workers.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    last = next_ranges(schedule, per_step, step, last);
    ranges.push_back(last);
  }
  require_whole(schedule, last);
  return ranges;
}

Schedule part_of(const Schedule& schedule, std::int64_t per_step, std::int64_t step,
                 const std::vector<StepRange>& ranges) {
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
