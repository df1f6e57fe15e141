#include "simulate/synchronisation.h"

#include <algorithm>

namespace chimera {
namespace {

constexpr double kLeastIdle = 1e-9;  // of a worker's step; less is rounding

}  // namespace

Synchronisation::Synchronisation(const Schedule& schedule, const CostTable& costs)
    : schedule_(schedule), costs_(costs), update_(costs.updates(schedule)) {
  if (!costs.has_all_reduces()) return;
  groups_ = gradient_groups(schedule.placement, costs.has_tied_matrix());
  held_.resize(schedule.workers.size());
  lane_free_.resize(schedule.workers.size());
  last_launch_.resize(groups_.size());
  open_.resize(groups_.size());
  for (std::size_t s = 0; s < groups_.size(); ++s) {
    for (const WorkerId worker : groups_[s]) held_[worker.index()].emplace_back(static_cast<std::int64_t>(s));
  }
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

/// One walk from the worker's last op back to the earliest of its stages' last backwards.
void Synchronisation::launch_all(std::size_t worker, StepRange range, double free, const WorkerTimeline& timeline) {
  const auto& ops = schedule_.workers[worker];
  const Launch at_end{free, range.begin == range.end ? std::nullopt : std::optional(Place{worker, range.end - 1})};
  std::size_t open = held_[worker].size();
  for (const StageId stage : held_[worker]) open_[stage.index()] = true;
  const double length =
      range.begin == range.end ? 0 : timeline.ops[range.end - 1].end - timeline.ops[range.begin].start;
  double idle = 0;
  for (std::size_t i = range.end; open > 0 && i-- > range.begin;) {
    if (i + 1 < range.end) idle += timeline.ops[i + 1].start - timeline.ops[i].end;
    if (!gives_weight_gradient(ops[i].kind) || !open_[ops[i].stage.index()]) continue;
    open_[ops[i].stage.index()] = false;
    --open;
    const bool early = costs_.all_reduce_placement() == AllReducePlacement::Eager ||
                       (costs_.all_reduce_placement() == AllReducePlacement::EagerOpt && idle > kLeastIdle * length);
    const Launch now{timeline.ops[i].end, Place{worker, i}};
    launch(ops[i].stage, early ? now : at_end);
    if (costs_.has_tied_matrix() && uses_tied_matrix(ops[i].stage, schedule_.stages) && open_[groups_.size() - 1]) {
      open_[groups_.size() - 1] = false;
      --open;
      launch(StageId(schedule_.stages), early ? now : at_end);
    }
  }
  for (const StageId stage : held_[worker]) {  // no micro-batch goes through the copy held here
    if (!open_[stage.index()]) continue;
    open_[stage.index()] = false;
    launch(stage, at_end);
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
