#include "plan/lost_workers.h"

#include "core/error.h"
#include "generate/detours.h"
#include "simulate/simulate.h"

namespace chimera {

std::vector<double> slowdowns_without_worker(const PlannedSchedule& planned, std::int64_t data_parallel) {
  constexpr std::int64_t kMaxTriedOps = 100'000;  // Of the schedules of all lost workers; takes about a second
  constexpr std::int64_t kOrders = 12;            // Attempts for each
  const Schedule& healthy = *planned.schedule;
  if (healthy.updates || num_ops(healthy) * data_parallel * std::ssize(healthy.workers) > kMaxTriedOps) return {};
  CostModel costs{.stages = planned.model.costs.stages, .latency = planned.model.costs.latency};
  costs.recompute = planned.model.costs.recompute;
  costs.slices = planned.model.costs.slices;
  const double step = simulate(in_all_groups(healthy, data_parallel), costs).makespan;
  std::vector<double> ratios;
  for (std::int64_t w = 0; w < std::ssize(healthy.workers); ++w) {
    try {
      const Detours detours = make_detours({.healthy = healthy,
                                            .groups = data_parallel,
                                            .lost = {WorkerId(w)},
                                            .effort = kOrders * num_ops(healthy) * data_parallel});
      ratios.push_back(simulate(detours.schedule, costs).makespan / step);
    } catch (const ConfigError&) {
      ratios.push_back(0);
    }
  }
  return ratios;
}

}  // namespace chimera
