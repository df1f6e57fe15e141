#include "simulate/synchronization.h"

#include <algorithm>

namespace chimera {

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

Synchronisation::Synchronisation(const Schedule& schedule, const CostTable& costs, Timeline& timeline)
    : costs_(costs), timeline_(timeline), lanes_(schedule, costs, timeline), update_(costs.updates(schedule)) {}

void Synchronisation::end_step(const OpTable& step, const std::vector<StepRange>& ranges, std::vector<double>& free) {
  if (costs_.has_all_reduces()) sum(step, ranges, free);
  double start = 0;
  for (std::size_t w = 0; w < ranges.size(); ++w) start = std::max({start, free[w], lanes_.free_since(w)});
  for (std::size_t w = 0; w < ranges.size(); ++w) {
    free[w] = start + update_[w];
    timeline_.workers[w].updates.push_back({ranges[w].end, start, free[w]});
  }
}

void Synchronisation::sum(const OpTable& step, const std::vector<StepRange>& ranges, const std::vector<double>& free) {
  const auto launches = launches_of_step(step, costs_);
  for (std::size_t w = 0; w < ranges.size(); ++w) {
    const auto& ops = timeline_.workers[w].ops;
    // Before its first op the worker has been free since the step before; after its last op, since that or later.
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
