#include "simulate/shared_cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "simulate/cores_run.h"
#include "simulate/lower_bound.h"
#include "simulate/steps.h"
#include "simulate/summary.h"

namespace chimera {
namespace {

void require_valid(const SharedCores& cores) {
  if (!(cores.cores > 0)) throw ConfigError(fmt::format("cores: {} is not a number above 0", cores.cores));
  if (!(cores.all_reduce_share >= 0 && cores.all_reduce_share <= 1))
    throw ConfigError(fmt::format("share of all-reduces that computes: {} is not in [0, 1]", cores.all_reduce_share));
  require_valid(cores.contention);
}

}  // namespace

Timeline simulate_on_cores(const Schedule& schedule, const CostModel& costs, const SharedCores& cores) {
  return simulate_steps_on_cores(schedule, 1, costs, cores);
}

Timeline simulate_steps_on_cores(const Schedule& unrolled, std::int64_t steps, const CostModel& costs,
                                 const SharedCores& cores) {
  require_valid(cores);
  const CostTable table(unrolled, costs);
  std::vector<std::vector<StepRange>> ranges = {whole_range(unrolled)};
  if (!unrolled.updates) ranges = step_ranges(unrolled, steps);
  Timeline timeline = empty_timeline(unrolled);
  CoresRun(unrolled, ranges, table, cores, launches_of_steps(unrolled, ranges, table), timeline).run();
  if (unrolled.updates) end_steps_with_ops(unrolled, steps, timeline);
  count_peaks(unrolled, timeline);
  sum_up(timeline);
  const double all_cores = cores.cores * static_cast<double>(cores.nodes.count());
  const double bound = std::max(lower_bound(unrolled, table), work_of_ops(unrolled, table) / all_cores);
  timeline.lower_bound = std::min(bound, timeline.makespan);
  return timeline;
}

}  // namespace chimera
