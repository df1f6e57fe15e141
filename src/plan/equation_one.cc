#include "plan/equation_one.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "simulate/cost_table.h"

namespace chimera {
namespace {

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Sets the all-reduces of the worker with the largest exposed time; among equals, of the one with the most.
/// All-reduces of stages whose last backward comes before the worker's last op also fill the bubbles between backwards.
void add_sums(const PaperModel& paper, const Schedule& schedule, const PipelineShape& shape, const CostTable& costs,
              EquationOne& equation) {
  if (!costs.has_all_reduces()) return;
  const auto updates =
      static_cast<double>(schedule.updates ? schedule.micro_batches / schedule.updates->micro_batches : 1);
  const auto groups = gradient_groups(schedule.placement, costs.sums().tied);
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    const WorkerId worker(static_cast<std::int64_t>(w));
    // Bubbles into which the paper lets all-reduces fall (SC'21, section 3.4).
    const FreeRegions regions = paper.free_regions(shape, worker.value());
    double sum = 0;
    double early = 0;  // all-reduces that can start before the worker's last op
    for (std::size_t s = 0; s < groups.size(); ++s) {
      if (std::ranges::count(groups[s], worker) == 0) continue;
      const ParameterGroupId group(static_cast<std::int64_t>(s));
      sum += costs.all_reduce(group) * updates;
      if (group.value() >= regions.first_stage) early += costs.all_reduce(group);
    }
    const double before = static_cast<double>(regions.backwards) * equation.backward;
    const double around = static_cast<double>(regions.forwards_and_backwards) * (equation.forward + equation.backward);
    const double left = std::max(0.0, sum - std::min(early, before) - around);
    if (std::pair(left, sum) <= std::pair(equation.unoverlapped, equation.all_reduce)) continue;
    equation.unoverlapped = left;
    equation.all_reduce = sum;
  }
}

}  // namespace

const PaperModel* paper_model(const Generator& generator, const PipelineShape& shape) {
  const bool has_form = generator.stages_per_worker(shape) == 1 && shape.slices == 1;
  return generator.paper && has_form ? &*generator.paper : nullptr;
}

EquationOne equation_one(const PaperModel& paper, const Schedule& schedule, const PipelineShape& shape,
                         const CostModel& costs) {
  EquationOne equation;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    // The paper assumes equal stages; means over stages stand in for them. Recomputation counts as backward.
    const double again = costs.recompute.empty() ? 0 : costs.recompute[s];
    equation.forward += costs.stages[s].forward;
    equation.backward += costs.stages[s].backward + again;
  }
  const double part = schedule.micro_batch_scale / static_cast<double>(costs.stages.size());
  equation.forward *= part;
  equation.backward *= part;
  if (schedule.workers.size() > 1) {
    equation.point_to_point = costs.latency;
    if (costs.links) {
      // Each end of a message copies it once.
      const double link = mean_of(costs.links->times()) + 2 * mean_of(costs.links->copies);
      equation.point_to_point += costs.links->alpha + link * schedule.micro_batch_scale;
    }
  }
  equation.critical = paper.critical_ops(shape, equation.forward > 0 ? equation.backward / equation.forward : 2);
  add_sums(paper, schedule, shape, CostTable(schedule, costs), equation);
  equation.seconds = (equation.forward + equation.point_to_point) * static_cast<double>(equation.critical.forwards) +
                     (equation.backward + equation.point_to_point) * static_cast<double>(equation.critical.backwards) +
                     equation.unoverlapped;
  return equation;
}

}  // namespace chimera
