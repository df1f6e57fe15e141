#include "simulate/sum_lanes.h"

#include <algorithm>

namespace chimera {

SumLanes::SumLanes(const Schedule& schedule, const CostTable& costs, Timeline& timeline)
    : costs_(costs),
      timeline_(timeline),
      groups_(gradient_groups(schedule.placement, costs.sums().tied)),
      sums_(groups_.size()),
      lanes_(schedule.workers.size()) {}

void SumLanes::launch(std::size_t worker, StageId stage, double time, std::size_t after) {
  if (costs_.all_reduce(stage) <= 0) return;
  lanes_[worker].launched.push_back({ParameterGroupId(stage.value()), static_cast<std::int64_t>(after)});
  Sum& sum = sums_[stage.index()];
  if (time > sum.last_launch || (time == sum.last_launch && worker < sum.last_worker)) {
    sum.last_launch = time;
    sum.last_worker = worker;
    sum.last_op = after > 0 ? std::optional(Place{worker, after - 1}) : std::nullopt;
  }
  if (++sum.launches == groups_[stage.index()].size()) complete_.push_back(stage);
}

bool SumLanes::can_begin(StageId stage) const {
  return std::ranges::all_of(groups_[stage.index()], [&](WorkerId worker) {
    const Lane& lane = lanes_[worker.index()];
    return !lane.is_running && lane.launched.front().group == ParameterGroupId(stage.value());
  });
}

std::vector<SumLanes::Begun> SumLanes::begin_ready() {
  std::vector<Begun> begun;
  std::erase_if(complete_, [&](StageId stage) {
    const bool begins = can_begin(stage);
    if (begins) begun.push_back(begin(stage));
    return begins;
  });
  return begun;
}

SumLanes::Begun SumLanes::begin(StageId stage) {
  const Sum& launched = sums_[stage.index()];
  TimedAllReduce sum{stage, launched.last_launch, 0, launched.last_op};
  for (const WorkerId worker : groups_[stage.index()]) {
    const double free = lanes_[worker.index()].free_since;
    if (free <= sum.start) continue;
    sum.start = free;
    sum.launched_by = timeline_.workers[worker.index()].all_reduces.back().launched_by;
  }
  for (const WorkerId worker : groups_[stage.index()]) {
    Lane& lane = lanes_[worker.index()];
    lane.is_running = true;
    sum.after = static_cast<std::size_t>(lane.launched.front().after);
    timeline_.workers[worker.index()].all_reduces.push_back(sum);
  }
  return {stage, sum.start};
}

void SumLanes::end(StageId stage, double time) {
  for (const WorkerId worker : groups_[stage.index()]) {
    Lane& lane = lanes_[worker.index()];
    lane.launched.erase(lane.launched.begin());
    lane.is_running = false;
    lane.free_since = time;
    timeline_.workers[worker.index()].all_reduces.back().end = time;
  }
  sums_[stage.index()] = {};
}

}  // namespace chimera
