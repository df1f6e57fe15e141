#include "simulate/sum_lanes.h"

#include <algorithm>

namespace chimera {

SumLanes::SumLanes(const Schedule& schedule, const CostTable& costs, Timeline& timeline)
    : costs_(costs),
      timeline_(timeline),
      groups_(gradient_groups(schedule.placement, costs.sums().tied)),
      sums_(groups_.size()),
      lanes_(schedule.workers.size()) {}

void SumLanes::launch(std::size_t worker, ParameterGroupId group, double time, std::size_t after) {
  if (costs_.all_reduce(group) <= 0) return;
  lanes_[worker].launched.push_back({group, static_cast<std::int64_t>(after)});
  Sum& sum = sums_[group.index()];
  if (time > sum.last_launch || (time == sum.last_launch && worker < sum.last_worker)) {
    sum.last_launch = time;
    sum.last_worker = worker;
    sum.last_op = after > 0 ? std::optional(Place{worker, after - 1}) : std::nullopt;
  }
  if (++sum.launches == groups_[group.index()].size()) complete_.push_back(group);
}

bool SumLanes::can_begin(ParameterGroupId group) const {
  return std::ranges::all_of(groups_[group.index()], [&](WorkerId worker) {
    const Lane& lane = lanes_[worker.index()];
    return !lane.is_running && lane.launched.front().group == group;
  });
}

bool SumLanes::has_next(ParameterGroupId group) const {
  return std::ranges::all_of(groups_[group.index()],
                             [&](WorkerId worker) { return lanes_[worker.index()].launched.size() > 1; });
}

std::vector<SumLanes::Begun> SumLanes::begin_ready() {
  std::vector<Begun> begun;
  std::erase_if(complete_, [&](ParameterGroupId group) {
    const bool begins = can_begin(group);
    if (begins) begun.push_back(begin(group));
    return begins;
  });
  return begun;
}

SumLanes::Begun SumLanes::begin(ParameterGroupId group) {
  const Sum& launched = sums_[group.index()];
  TimedAllReduce sum{.group = group, .start = launched.last_launch, .launched_by = launched.last_op};
  for (const WorkerId worker : groups_[group.index()]) {
    const double free = lanes_[worker.index()].free_since;
    if (free <= sum.start) continue;
    sum.start = free;
    sum.launched_by = timeline_.workers[worker.index()].all_reduces.back().launched_by;
  }
  for (const WorkerId worker : groups_[group.index()]) {
    Lane& lane = lanes_[worker.index()];
    lane.is_running = true;
    sum.after = static_cast<std::size_t>(lane.launched.front().after);
    timeline_.workers[worker.index()].all_reduces.push_back(sum);
  }
  return {group, sum.start};
}

void SumLanes::end(ParameterGroupId group, double time) {
  for (const WorkerId worker : groups_[group.index()]) {
    Lane& lane = lanes_[worker.index()];
    lane.launched.erase(lane.launched.begin());
    lane.is_running = false;
    lane.free_since = time;
    timeline_.workers[worker.index()].all_reduces.back().end = time;
  }
  sums_[group.index()] = {};
}

}  // namespace chimera
