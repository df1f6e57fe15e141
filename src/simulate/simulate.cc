#include "simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/signals.h"
#include "schedule/dependencies.h"
#include "simulate/copy_engines.h"
#include "simulate/links.h"
#include "simulate/lower_bound.h"
#include "simulate/memory.h"
#include "simulate/steps.h"
#include "simulate/sum_lanes.h"
#include "simulate/summary.h"

namespace chimera {

Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline) {
  const OpTable table(schedule);
  const auto timed = [&](OpIndex op) -> TimedOp& {
    const std::size_t worker = table.worker(op);
    return timeline.workers[worker].ops[op - table.first(worker)];
  };
  std::vector<OpIndex> forwards;
  for (OpIndex op = 0; op < table.size(); ++op) {
    const bool together = costs.pair && table.op(op).paired;  // its backward would have to move, too
    if (table.op(op).kind == OpKind::Forward && !together) forwards.push_back(op);
  }
  // Descending starts: the ops that limit a forward start later, so they move first.
  std::sort(forwards.begin(), forwards.end(), [&](OpIndex a, OpIndex b) { return timed(a).start > timed(b).start; });
  for (const OpIndex op : forwards) {
    const OpIndex next = op + 1;
    const OpIndex consumer = table.consumer(table.op(op));
    double end = std::numeric_limits<double>::infinity();
    if (next != table.first(table.worker(op) + 1)) end = timed(next).start;
    if (consumer != kNoOp) {
      const double latency = table.worker(consumer) == table.worker(op) ? 0 : costs.latency;
      end = std::min(end, timed(consumer).start - latency);
    }
    if (!std::isfinite(end)) continue;
    TimedOp& moved = timed(op);
    const double delay = std::max(0.0, end - moved.end);
    moved = {moved.start + delay, moved.end + delay};
  }
  return timeline;
}

namespace {

class StepRun {
 public:
  /// `part` has the ops of `ranges` of the whole schedule. `free[w]` is in: when worker w can start; out: the end of
  /// its ops.
  StepRun(const OpTable& part, const std::vector<StepRange>& ranges, const CostTable& costs, Links& links,
          std::vector<double>& free, Timeline& timeline)
      : table_(part),
        ranges_(ranges),
        costs_(costs),
        links_(links),
        free_(free),
        timeline_(timeline),
        updates_(part.schedule()),
        copies_(part.schedule(), costs) {
    for (std::size_t w = 0; w < ranges.size(); ++w) timed_.push_back(timeline.workers[w].ops.data() + ranges[w].begin);
    if (costs.has_traffic()) arrived_.resize(table_.size());
  }

  void run() {
    OpIndex visited = 0;
    OpIndex second = kNoOp;  // second op of the pair timed last
    const auto visit = [&](OpIndex op) {
      throw_if_interrupted();
      ++visited;
      if (op == second) return;
      const auto ops = table_.at_once(op, costs_.pairs());
      time_at_once(op, ops);
      if (ops.size() > 1) second = op + 1;
    };
    visit_in_dependency_order(table_, visit, costs_.pairs());
    if (visited != table_.size()) throw_stuck(table_.schedule());
  }

 private:
  TimedOp& timed(OpIndex op, std::size_t worker) { return timed_[worker][op - table_.first(worker)]; }

  double arrival(OpIndex made, std::size_t worker) {
    const std::size_t maker = table_.worker(made);
    if (maker == worker) return timed(made, maker).end;
    return arrived_.empty() ? timed(made, maker).end + costs_.delay(table_.op(made)) : arrived_[made];
  }

  void time_at_once(OpIndex index, std::span<const Op> ops) {
    const std::size_t worker = table_.worker(index);
    const std::size_t position = index - table_.first(worker);
    const double free = std::max(free_[worker], copies_.loaded(worker, position, position + ops.size()));
    const double again = costs_.recomputation(ops);
    const double recomputed = free + again;
    double ready = recomputed;
    for (const Op& op : ops) {
      for (const OpIndex input : table_.inputs(op)) {
        if (input != kNoOp) ready = std::max(ready, arrival(input, worker));
      }
    }
    const double end = ready + (costs_.duration(ops) - again);
    const double start = ready > recomputed ? std::max(free, ready - again) : free;
    free_[worker] = copies_.end_ops(worker, position, position + ops.size(), end);
    for (const Op& op : ops) {
      timed(index, worker) = {start, end};
      if (!arrived_.empty()) send(index, op, worker, end);
      if (updates_.completes_update(op)) update(op.stage, worker, index);
      ++index;
    }
  }

  void send(OpIndex index, const Op& op, std::size_t worker, double ready) {
    const OpIndex consumer = table_.consumer(op);
    if (consumer == kNoOp) return;
    arrived_[index] = ready + costs_.delay(op);  // for an op on another worker than its placement says
    if (table_.worker(consumer) == worker) return;
    arrived_[index] = links_.send(worker, table_.worker(consumer), op, ready).arrived;
    if (costs_.blocking_sends()) free_[worker] = std::max(free_[worker], arrived_[index]);
  }

  void update(StageId stage, std::size_t worker, OpIndex index) {
    const Place place{worker, ranges_[worker].begin + index - table_.first(worker)};
    const std::size_t after = place.position + 1;
    const double start = free_[worker];
    const double summed = start + costs_.all_reduce(parameters_of(stage));
    WorkerTimeline& timeline = timeline_.workers[worker];
    if (summed > start) timeline.all_reduces.push_back({parameters_of(stage), start, summed, place, after});
    free_[worker] = summed + costs_.optimizer(stage);
    timeline.updates.push_back({after, start, free_[worker]});
  }

  const OpTable& table_;
  const std::vector<StepRange>& ranges_;
  const CostTable& costs_;
  Links& links_;
  std::vector<double>& free_;
  Timeline& timeline_;
  UpdateCounter updates_;
  CopyEngines copies_;
  std::vector<TimedOp*> timed_;  // [worker]: its first op
  std::vector<double> arrived_;  // [op]; empty if every arrival is the op's end plus the delay
};

void run_synchronous(const Schedule& schedule, std::int64_t steps, const CostTable& costs, Timeline& timeline) {
  Links links(costs);
  StepSynchronization synchronization(schedule, costs, timeline);
  std::vector<double> free(schedule.workers.size(), 0);
  const auto run_step = [&](const OpTable& step, const std::vector<StepRange>& ranges) {
    StepRun(step, ranges, costs, links, free, timeline).run();
    synchronization.end_step(step, ranges, free);
    timeline.step_ends.push_back(free.empty() ? 0 : *std::max_element(free.begin(), free.end()));
  };
  if (steps == 1) return run_step(OpTable(schedule), whole_range(schedule));
  std::int64_t step = 0;
  for (const auto& ranges : step_ranges(schedule, steps)) {
    const Schedule part = part_of(schedule, schedule.micro_batches / steps, step++, ranges);
    run_step(OpTable(part), ranges);
  }
}

void run_asynchronous(const Schedule& schedule, std::int64_t steps, const CostTable& costs, Timeline& timeline) {
  Links links(costs);
  std::vector<double> free(schedule.workers.size(), 0);
  const auto range = whole_range(schedule);
  StepRun(OpTable(schedule), range, costs, links, free, timeline).run();
  end_steps_with_ops(schedule, steps, timeline);
}

}  // namespace

Timeline simulate(const Schedule& schedule, const CostModel& costs) { return simulate_steps(schedule, 1, costs); }

Timeline simulate_steps(const Schedule& unrolled, std::int64_t steps, const CostModel& costs) {
  const CostTable table(unrolled, costs);
  Timeline timeline = empty_timeline(unrolled);
  unrolled.updates ? run_asynchronous(unrolled, steps, table, timeline)
                   : run_synchronous(unrolled, steps, table, timeline);
  count_peaks(unrolled, timeline);
  summarize_timeline(timeline);
  timeline.lower_bound = std::min(lower_bound(unrolled, table), timeline.makespan);  // rounding can exceed it
  return timeline;
}

}  // namespace chimera
