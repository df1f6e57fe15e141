#include "simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "core/error.h"
#include "schedule/dependencies.h"

namespace chimera {
namespace {

void require_valid(const Schedule& schedule, const CostModel& costs) {
  if (static_cast<std::int64_t>(costs.stages.size()) != schedule.stages) {
    throw ConfigError(fmt::format("costs of {} stages for a schedule of {}", costs.stages.size(), schedule.stages));
  }
  const auto valid = [](double value) { return std::isfinite(value) && value >= 0; };
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCosts& stage = costs.stages[s];
    for (const double value : {stage.forward, stage.backward, stage.input_gradient, stage.weight_gradient}) {
      if (!valid(value))
        throw ConfigError(fmt::format("cost {} of stage {} is not a finite time of 0 or more", value, s));
    }
  }
  if (!valid(costs.latency))
    throw ConfigError(fmt::format("latency {} is not a finite time of 0 or more", costs.latency));
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, const CostModel& costs) : table_(schedule), costs_(costs) {}

  Timeline run() {
    const Schedule& schedule = table_.schedule();
    timeline_.workers.resize(schedule.workers.size());
    for (std::size_t w = 0; w < schedule.workers.size(); ++w)
      timeline_.workers[w].ops.resize(schedule.workers[w].size());
    worker_free_.assign(schedule.workers.size(), 0);
    head_.assign(table_.size(), 0);
    order_.reserve(table_.size());
    visit_in_dependency_order(table_, [this](OpIndex op) { time_op(op); });
    if (order_.size() != table_.size()) {
      throw ScheduleError("schedule '" + schedule.name +
                          "' cannot run: its ops wait for each other; run `chimera check` on it");
    }
    for (std::size_t w = 0; w < schedule.workers.size(); ++w) sum_up(schedule.workers[w], timeline_.workers[w]);
    double idle = 0;
    for (auto& worker : timeline_.workers) {
      worker.idle = timeline_.makespan - worker.busy;
      idle += worker.idle;
    }
    const double area = timeline_.makespan * static_cast<double>(timeline_.workers.size());
    timeline_.bubble_ratio = area > 0 ? idle / area : 0;
    timeline_.lower_bound = lower_bound();
    return std::move(timeline_);
  }

 private:
  double duration(const Op& op) const { return costs_.stages[op.stage.index()].of(op.kind); }

  double latency(OpIndex from, OpIndex to) const {
    return table_.worker(from) == table_.worker(to) ? 0 : costs_.latency;
  }

  TimedOp& timed(OpIndex op) {
    const std::size_t worker = table_.worker(op);
    return timeline_.workers[worker].ops[op - table_.first(worker)];
  }

  void time_op(OpIndex index) {
    const Op& op = table_.op(index);
    double& free = worker_free_[table_.worker(index)];
    double start = free;
    for (const OpIndex input : table_.inputs(op)) {
      if (input == kNoOp) continue;
      start = std::max(start, timed(input).end + latency(input, index));
      head_[index] = std::max(head_[index], head_[input] + duration(table_.op(input)) + latency(input, index));
    }
    free = start + duration(op);
    timed(index) = {start, free};
    timeline_.makespan = std::max(timeline_.makespan, free);
    order_.push_back(index);
  }

  static void sum_up(const std::vector<Op>& ops, WorkerTimeline& worker) {
    std::int64_t in_flight = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      worker.busy += worker.ops[i].end - worker.ops[i].start;
      if (ops[i].kind == OpKind::Forward) ++in_flight;
      worker.peak_in_flight = std::max(worker.peak_in_flight, in_flight);
      if (gives_weight_gradient(ops[i].kind)) --in_flight;
    }
  }

  double lower_bound() const {
    std::vector<double> tail(table_.size(), 0);
    double bound = 0;
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const double own = duration(table_.op(*it));
      bound = std::max(bound, head_[*it] + own + tail[*it]);
      for (const OpIndex input : table_.inputs(table_.op(*it))) {
        if (input != kNoOp) tail[input] = std::max(tail[input], latency(input, *it) + own + tail[*it]);
      }
    }
    for (std::size_t w = 0; w < timeline_.workers.size(); ++w) {
      if (timeline_.workers[w].ops.empty()) continue;
      const auto least = [&](const std::vector<double>& values) {
        return *std::min_element(values.begin() + table_.first(w), values.begin() + table_.first(w + 1));
      };
      bound = std::max(bound, least(head_) + timeline_.workers[w].busy + least(tail));
    }
    return bound;
  }

  OpTable table_;
  const CostModel& costs_;
  Timeline timeline_;
  std::vector<double> worker_free_;
  std::vector<double> head_;    // [op]: longest path of dependencies up to its start
  std::vector<OpIndex> order_;  // as visited
};

}  // namespace

double StageCosts::of(OpKind kind) const {
  switch (kind) {
    case OpKind::Forward: return forward;
    case OpKind::Backward: return backward;
    case OpKind::BackwardInput: return input_gradient;
    case OpKind::BackwardWeight: return weight_gradient;
  }
  return 0;
}

CostModel CostModel::uniform(const Schedule& schedule, const StageCosts& share, double latency) {
  const double part =
      schedule.micro_batch_scale * static_cast<double>(schedule.workers.size()) / static_cast<double>(schedule.stages);
  const StageCosts stage{share.forward * part, share.backward * part, share.input_gradient * part,
                         share.weight_gradient * part};
  return {std::vector<StageCosts>(static_cast<std::size_t>(schedule.stages), stage), latency};
}

Timeline simulate(const Schedule& schedule, const CostModel& costs) {
  require_valid(schedule, costs);
  return Simulation(schedule, costs).run();
}

Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline) {
  const OpTable table(schedule);
  const auto timed = [&](OpIndex op) -> TimedOp& {
    const std::size_t worker = table.worker(op);
    return timeline.workers[worker].ops[op - table.first(worker)];
  };
  std::vector<OpIndex> forwards;
  for (OpIndex op = 0; op < table.size(); ++op) {
    if (table.op(op).kind == OpKind::Forward) forwards.push_back(op);
  }
  // What limits a forward starts later than it, and has moved by the time it is looked at.
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

}  // namespace chimera
