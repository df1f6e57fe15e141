#include "simulate/synchronisation.h"

#include <algorithm>

namespace chimera {
namespace {

constexpr double kLeastIdle = 1e-9;  // of a worker's step; less is rounding

}  // namespace

std::vector<std::vector<StageId>> summed_stages(const std::vector<std::vector<WorkerId>>& groups, std::size_t workers) {
  std::vector<std::vector<StageId>> held(workers);
  for (std::size_t s = 0; s < groups.size(); ++s) {
    for (const WorkerId worker : groups[s]) held[worker.index()].emplace_back(static_cast<std::int64_t>(s));
  }
  return held;
}

/// One walk from the worker's last op back to the earliest of its stages' last backwards.
std::vector<LaunchPoint> launch_points(const Schedule& schedule, const CostTable& costs, std::size_t worker,
                                       const std::vector<StageId>& held, StepRange range,
                                       const std::vector<TimedOp>& ops) {
  std::vector<LaunchPoint> points;
  std::vector<StageId> open = held;
  const auto close = [&](StageId stage) { return std::erase(open, stage) > 0; };
  const double length = range.begin == range.end ? 0 : ops[range.end - 1].end - ops[range.begin].start;
  double idle = 0;
  for (std::size_t i = range.end; !open.empty() && i-- > range.begin;) {
    if (i + 1 < range.end) idle += ops[i + 1].start - ops[i].end;
    const Op& op = schedule.workers[worker][i];
    if (!gives_weight_gradient(op.kind) || !close(op.stage)) continue;
    const bool early = costs.all_reduce_placement() == AllReducePlacement::Eager ||
                       (costs.all_reduce_placement() == AllReducePlacement::EagerOpt && idle > kLeastIdle * length);
    const auto after = early ? std::optional(i) : std::nullopt;
    points.push_back({op.stage, after});
    const StageId tied(schedule.stages);
    if (costs.has_tied_matrix() && uses_tied_matrix(op.stage, schedule.stages) && close(tied)) {
      points.push_back({tied, after});
    }
  }
  for (const StageId stage : open) points.push_back({stage, std::nullopt});  // no micro-batch goes through its copy
  return points;
}

Synchronisation::Synchronisation(const Schedule& schedule, const CostTable& costs)
    : schedule_(schedule), costs_(costs), update_(costs.updates(schedule)) {
  if (!costs.has_all_reduces()) return;
  groups_ = gradient_groups(schedule.placement, costs.has_tied_matrix());
  held_ = summed_stages(groups_, schedule.workers.size());
  lane_free_.resize(schedule.workers.size());
  last_launch_.resize(groups_.size());
}

void Synchronisation::end_step(const std::vector<StepRange>& ranges, std::vector<double>& free, Timeline& timeline) {
  if (costs_.has_all_reduces()) {
    std::fill(last_launch_.begin(), last_launch_.end(), Launch{});
    std::fill(lane_free_.begin(), lane_free_.end(), 0);
    for (std::size_t w = 0; w < ranges.size(); ++w) launch_all(w, ranges[w], free[w], timeline.workers[w]);
    reduce_all(timeline);
  }
  for (std::size_t w = 0; w < ranges.size(); ++w) {
    const double start = lane_free_.empty() ? free[w] : std::max(free[w], lane_free_[w]);
    free[w] = start + update_[w];
    timeline.workers[w].updates.push_back({ranges[w].end, start, free[w]});
  }
}

void Synchronisation::launch_all(std::size_t worker, StepRange range, double free, const WorkerTimeline& timeline) {
  const Launch at_end{free, range.begin == range.end ? std::nullopt : std::optional(Place{worker, range.end - 1})};
  for (const auto& [stage, after_op] : launch_points(schedule_, costs_, worker, held_[worker], range, timeline.ops)) {
    launch(stage, after_op ? Launch{timeline.ops[*after_op].end, Place{worker, *after_op}} : at_end);
  }
}

void Synchronisation::launch(StageId stage, const Launch& launched) {
  Launch& last = last_launch_[stage.index()];
  if (launched.time > last.time) last = launched;
}

void Synchronisation::reduce_all(Timeline& timeline) {
  std::vector<StageId> order;
  for (std::size_t s = 0; s < groups_.size(); ++s) {
    const StageId stage(static_cast<std::int64_t>(s));
    if (costs_.all_reduce(stage) > 0) order.push_back(stage);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](StageId a, StageId b) { return last_launch_[a.index()].time < last_launch_[b.index()].time; });
  for (const StageId stage : order) {
    TimedAllReduce sum{stage, last_launch_[stage.index()].time, 0, last_launch_[stage.index()].after};
    for (const WorkerId worker : groups_[stage.index()]) {
      if (lane_free_[worker.index()] <= sum.start) continue;
      sum.start = lane_free_[worker.index()];
      sum.launched_by = timeline.workers[worker.index()].all_reduces.back().launched_by;
    }
    sum.end = sum.start + costs_.all_reduce(stage);
    for (const WorkerId worker : groups_[stage.index()]) {
      lane_free_[worker.index()] = sum.end;
      timeline.workers[worker.index()].all_reduces.push_back(sum);
    }
  }
}

}  // namespace chimera
