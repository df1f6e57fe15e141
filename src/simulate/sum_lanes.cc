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
  TimedAllReduce sum{group, launched.last_launch, 0, launched.last_op};
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

std::vector<std::vector<AllReduceStart>> launches_of_step(const OpTable& step, const CostTable& costs) {
  if (!costs.has_all_reduces()) return std::vector<std::vector<AllReduceStart>>(step.schedule().workers.size());
  return place_all_reduces(step, unit_start_times(step, costs.pairs()), costs.sums());
}

Launches launches_of_steps(const Schedule& schedule, const std::vector<std::vector<StepRange>>& ranges,
                           const CostTable& costs) {
  Launches launches;
  if (schedule.updates || !costs.has_all_reduces()) return launches;
  const auto steps = static_cast<std::int64_t>(ranges.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    const Schedule part =
        part_of(schedule, schedule.micro_batches / steps, step, ranges[static_cast<std::size_t>(step)]);
    launches.push_back(launches_of_step(OpTable(part), costs));
  }
  return launches;
}

StepSynchronization::StepSynchronization(const Schedule& schedule, const CostTable& costs, Timeline& timeline)
    : costs_(costs), timeline_(timeline), lanes_(schedule, costs, timeline), update_(costs.updates(schedule)) {}

void StepSynchronization::end_step(const OpTable& step, const std::vector<StepRange>& ranges,
                                   std::vector<double>& free) {
  if (costs_.has_all_reduces()) sum(step, ranges, free);
  double start = 0;
  for (std::size_t w = 0; w < ranges.size(); ++w) start = std::max({start, free[w], lanes_.free_since(w)});
  for (std::size_t w = 0; w < ranges.size(); ++w) {
    free[w] = start + update_[w];
    timeline_.workers[w].updates.push_back({ranges[w].end, start, free[w]});
  }
}

void StepSynchronization::sum(const OpTable& step, const std::vector<StepRange>& ranges,
                              const std::vector<double>& free) {
  const auto launches = launches_of_step(step, costs_);
  for (std::size_t w = 0; w < ranges.size(); ++w) {
    const auto& ops = timeline_.workers[w].ops;
    // Before its first op, a worker is free since the last step; after its last op, since `free`, which may include
    // blocking sends.
    const double begin = timeline_.workers[w].updates.empty() ? 0 : timeline_.workers[w].updates.back().end;
    for (const auto& [group, after] : launches[w]) {
      const std::size_t end = ranges[w].begin + static_cast<std::size_t>(after + 1);
      const double time = end == ranges[w].end ? free[w] : after < 0 ? begin : ops[end - 1].end;
      lanes_.launch(w, group, time, end);
    }
  }
  for (auto begun = lanes_.begin_ready(); !begun.empty(); begun = lanes_.begin_ready()) {
    for (const auto& [group, start] : begun) lanes_.end(group, start + costs_.all_reduce(group));
  }
}

}  // namespace chimera
