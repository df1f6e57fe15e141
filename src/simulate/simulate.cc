#include "simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "schedule/dependencies.h"
#include "simulate/links.h"
#include "simulate/lower_bound.h"
#include "simulate/synchronisation.h"
#include "simulate/weight_versions.h"

namespace chimera {
namespace {

[[noreturn]] void fail_stuck(const Schedule& schedule) {
  throw ScheduleError("schedule '" + schedule.name +
                      "' cannot run: its ops wait for each other; run `chimera check` on it");
}

/// Times the ops of one step after those of the steps before.
class StepRun {
 public:
  /// `part` has the ops of `ranges` of the whole schedule. `free[w]` is when worker w may begin, and becomes when it
  /// has ended its ops.
  StepRun(const Schedule& part, const std::vector<StepRange>& ranges, const CostTable& costs, Links& links,
          std::vector<double>& free, Timeline& timeline)
      : table_(part), ranges_(ranges), costs_(costs), links_(links), free_(free), timeline_(timeline), updates_(part) {
    for (std::size_t w = 0; w < ranges.size(); ++w) timed_.push_back(timeline.workers[w].ops.data() + ranges[w].begin);
    if (costs.has_traffic()) arrived_.resize(table_.size());
  }

  void run() {
    OpIndex visited = 0;
    visit_in_dependency_order(table_, [&](OpIndex op) {
      time_op(op);
      ++visited;
    });
    if (visited != table_.size()) fail_stuck(table_.schedule());
  }

 private:
  TimedOp& timed(OpIndex op, std::size_t worker) { return timed_[worker][op - table_.first(worker)]; }

  double arrival(OpIndex made, std::size_t worker) {
    const std::size_t maker = table_.worker(made);
    if (maker == worker) return timed(made, maker).end;
    return arrived_.empty() ? timed(made, maker).end + costs_.delay() : arrived_[made];
  }

  void time_op(OpIndex index) {
    const Op& op = table_.op(index);
    const std::size_t worker = table_.worker(index);
    double start = free_[worker];
    for (const OpIndex input : table_.inputs(op)) {
      if (input != kNoOp) start = std::max(start, arrival(input, worker));
    }
    const double end = start + costs_.duration(op);
    timed(index, worker) = {start, end};
    free_[worker] = end;
    if (!arrived_.empty()) send(index, op, worker, end);
    if (updates_.completes_update(op)) update(op.stage, worker, index);
  }

  void send(OpIndex index, const Op& op, std::size_t worker, double ready) {
    arrived_[index] = ready + costs_.delay();  // for an op on a worker that its placement does not say
    const OpIndex consumer = table_.consumer(op);
    if (consumer == kNoOp || table_.worker(consumer) == worker) return;
    arrived_[index] = links_.send(worker, table_.worker(consumer), op, ready).arrived;
    if (costs_.blocking_sends()) free_[worker] = arrived_[index];
  }

  void update(StageId stage, std::size_t worker, OpIndex index) {
    const Place place{worker, ranges_[worker].begin + index - table_.first(worker)};
    const double start = free_[worker];
    const double summed = start + costs_.all_reduce(stage);
    WorkerTimeline& timeline = timeline_.workers[worker];
    if (summed > start) timeline.all_reduces.push_back({stage, start, summed, place});
    free_[worker] = summed + costs_.optimizer(stage);
    timeline.updates.push_back({place.position + 1, start, free_[worker]});
  }

  OpTable table_;
  const std::vector<StepRange>& ranges_;
  const CostTable& costs_;
  Links& links_;
  std::vector<double>& free_;
  Timeline& timeline_;
  UpdateCounter updates_;
  std::vector<TimedOp*> timed_;  // [worker]: where its ops begin
  std::vector<double> arrived_;  // [op]; empty where that is its end, plus the delay
};

std::int64_t micro_batches_a_step(const Schedule& schedule, std::int64_t steps) {
  if (steps < 1 || schedule.micro_batches % steps != 0) {
    throw ConfigError(fmt::format("{} micro-batches of '{}' are not those of {} equal steps", schedule.micro_batches,
                                  schedule.name, steps));
  }
  return schedule.micro_batches / steps;
}

/// Where each worker's ops of a step lie, which follow those of the step before.
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

/// The ops of those ranges as a schedule of its own, with micro-batches from 0.
Schedule part_of(const Schedule& schedule, std::int64_t per_step, std::int64_t step,
                 const std::vector<StepRange>& ranges) {
  Schedule part{.name = schedule.name,
                .stages = schedule.stages,
                .micro_batches = per_step,
                .placement = schedule.placement,
                .workers = {},
                .micro_batch_scale = schedule.micro_batch_scale};
  for (std::size_t w = 0; w < ranges.size(); ++w) {
    const auto begin = schedule.workers[w].begin();
    auto& ops = part.workers.emplace_back(begin + static_cast<std::ptrdiff_t>(ranges[w].begin),
                                          begin + static_cast<std::ptrdiff_t>(ranges[w].end));
    for (Op& op : ops) op.micro_batch = MicroBatchId(op.micro_batch.value() - step * per_step);
  }
  return part;
}

std::vector<StepRange> all_ops(const Schedule& schedule) {
  std::vector<StepRange> ranges;
  for (const auto& ops : schedule.workers) ranges.push_back({0, ops.size()});
  return ranges;
}

void require_whole(const Schedule& schedule, const std::vector<StepRange>& last) {
  for (std::size_t w = 0; w < last.size(); ++w) {
    if (last[w].end == schedule.workers[w].size()) continue;
    throw ScheduleError(fmt::format(
        "schedule '{}': worker {} runs op {} ({}) after one of another step; a synchronous schedule ends a step before "
        "it begins the next",
        schedule.name, w, last[w].end, to_text(schedule.workers[w][last[w].end])));
  }
}

/// Times all steps of a schedule with flushes between them.
void run_synchronous(const Schedule& schedule, std::int64_t steps, const CostTable& costs, Timeline& timeline) {
  const std::int64_t per_step = micro_batches_a_step(schedule, steps);
  Links links(costs);
  Synchronisation synchronisation(schedule, costs);
  std::vector<double> free(schedule.workers.size(), 0);
  std::vector<StepRange> ranges(schedule.workers.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    if (steps == 1) {
      ranges = all_ops(schedule);
      StepRun(schedule, ranges, costs, links, free, timeline).run();
    } else {
      ranges = next_ranges(schedule, per_step, step, ranges);
      const Schedule part = part_of(schedule, per_step, step, ranges);
      StepRun(part, ranges, costs, links, free, timeline).run();
    }
    synchronisation.end_step(ranges, free, timeline);
    timeline.step_ends.push_back(free.empty() ? 0 : *std::max_element(free.begin(), free.end()));
  }
  require_whole(schedule, ranges);
}

void run_asynchronous(const Schedule& schedule, std::int64_t steps, const CostTable& costs, Timeline& timeline) {
  const std::int64_t per_step = micro_batches_a_step(schedule, steps);
  Links links(costs);
  std::vector<double> free(schedule.workers.size(), 0);
  const auto ranges = all_ops(schedule);
  StepRun(schedule, ranges, costs, links, free, timeline).run();
  timeline.step_ends.resize(static_cast<std::size_t>(steps), 0);
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      double& end = timeline.step_ends[schedule.workers[w][i].micro_batch.index() / static_cast<std::size_t>(per_step)];
      end = std::max(end, timeline.workers[w].ops[i].end);
    }
  }
}

void sum_up_worker(const Schedule& schedule, std::size_t worker, WorkerTimeline& timeline) {
  const auto& ops = schedule.workers[worker];
  std::int64_t in_flight = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    timeline.busy += timeline.ops[i].end - timeline.ops[i].start;
    if (ops[i].kind == OpKind::Forward) ++in_flight;
    timeline.peak_in_flight = std::max(timeline.peak_in_flight, in_flight);
    if (gives_weight_gradient(ops[i].kind)) --in_flight;
  }
  if (!ops.empty()) {
    timeline.inner_idle = std::max(0.0, timeline.ops.back().end - timeline.ops.front().start - timeline.busy);
  }
  timeline.peak_stage_units =
      static_cast<double>(timeline.peak_in_flight) * share_of_stage(schedule) * schedule.micro_batch_scale;
  timeline.peak_weight_versions = peak_weight_versions(schedule, worker);
}

double period(const std::vector<double>& step_ends) {
  if (step_ends.size() < 2) return step_ends.empty() ? 0 : step_ends.front();
  const std::size_t middle = (step_ends.size() - 2) / 2;
  return step_ends[middle + 1] - step_ends[middle];
}

void sum_up(const Schedule& schedule, Timeline& timeline) {
  double busiest = 0;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    WorkerTimeline& worker = timeline.workers[w];
    sum_up_worker(schedule, w, worker);
    if (!worker.ops.empty()) timeline.ops_end = std::max(timeline.ops_end, worker.ops.back().end);
    if (!worker.updates.empty()) timeline.makespan = std::max(timeline.makespan, worker.updates.back().end);
    timeline.inner_bubble = std::max(timeline.inner_bubble, worker.inner_idle);
    busiest = std::max(busiest, worker.busy);
  }
  timeline.makespan = std::max(timeline.makespan, timeline.ops_end);
  timeline.makespan_bubble = timeline.makespan - busiest;
  double idle = 0;
  for (WorkerTimeline& worker : timeline.workers) {
    worker.idle = timeline.makespan - worker.busy;
    idle += worker.idle;
  }
  const double area = timeline.makespan * static_cast<double>(timeline.workers.size());
  timeline.bubble_ratio = area > 0 ? idle / area : 0;
  timeline.period = period(timeline.step_ends);
}

}  // namespace

Timeline simulate(const Schedule& schedule, const CostModel& costs) { return simulate_steps(schedule, 1, costs); }

Timeline simulate_steps(const Schedule& unrolled, std::int64_t steps, const CostModel& costs) {
  const CostTable table(unrolled, costs);
  Timeline timeline;
  timeline.workers.resize(unrolled.workers.size());
  for (std::size_t w = 0; w < unrolled.workers.size(); ++w) timeline.workers[w].ops.resize(unrolled.workers[w].size());
  unrolled.updates ? run_asynchronous(unrolled, steps, table, timeline)
                   : run_synchronous(unrolled, steps, table, timeline);
  sum_up(unrolled, timeline);
  timeline.lower_bound = std::min(lower_bound(unrolled, table), timeline.makespan);  // but for rounding, it is below
  return timeline;
}

}  // namespace chimera
