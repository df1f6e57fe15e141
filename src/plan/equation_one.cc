#include "plan/equation_one.h"

#include <fmt/format.h>
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "generate/registry.h"

namespace chimera {
namespace {

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

class Sums {
 public:
  Sums(const PaperModel& paper, const Schedule& schedule, const PipelineShape& shape, const CostTable& costs,
       EquationOne& equation)
      : paper_(paper), schedule_(schedule), shape_(shape), costs_(costs), equation_(equation) {
    updates_ = schedule.updates ? schedule.micro_batches / schedule.updates->micro_batches : 1;
  }

  void run() {
    if (!costs_.has_all_reduces()) return;
    const auto groups = gradient_groups(schedule_.placement, costs_.has_tied_matrix());
    std::vector<std::vector<ParameterGroupId>> held(schedule_.workers.size());
    for (std::size_t s = 0; s < groups.size(); ++s) {
      for (const WorkerId worker : groups[s]) held[worker.index()].emplace_back(static_cast<std::int64_t>(s));
    }
    for (std::size_t w = 0; w < held.size(); ++w) add_worker(static_cast<std::int64_t>(w), held[w]);
  }

 private:
  void add_worker(std::int64_t worker, const std::vector<ParameterGroupId>& held) {
    double sum = 0;
    for (const ParameterGroupId group : held) sum += costs_.all_reduce(group) * static_cast<double>(updates_);
    const double left = unoverlapped(worker, held, sum);
    if (left < equation_.unoverlapped || sum == 0) return;
    if (left == equation_.unoverlapped && sum <= equation_.all_reduce) return;
    equation_.unoverlapped = left;
    equation_.all_reduce = sum;
  }

  [[nodiscard]] double unoverlapped(std::int64_t worker, const std::vector<ParameterGroupId>& held, double sum) const {
    const FreeRegions regions = paper_.free_regions(shape_, worker);
    double early = 0;  // all-reduces that can start before the worker's last op
    for (const ParameterGroupId group : held) {
      if (group.value() >= regions.first_stage) early += costs_.all_reduce(group);
    }
    const double before = static_cast<double>(regions.backwards) * equation_.backward;
    const double around =
        static_cast<double>(regions.forwards_and_backwards) * (equation_.forward + equation_.backward);
    return std::max(0.0, sum - std::min(early, before) - around);
  }

  const PaperModel& paper_;
  const Schedule& schedule_;
  const PipelineShape& shape_;
  const CostTable& costs_;
  EquationOne& equation_;
  std::int64_t updates_ = 1;
};

}  // namespace

const PaperModel* paper_model(const Generator& generator, const PipelineShape& shape) {
  const bool has_form = generator.stages_a_worker(shape) == 1 && shape.slices == 1;
  return generator.paper && has_form ? &*generator.paper : nullptr;
}

std::optional<CriticalOps> critical_ops(const std::string& schedule, const PipelineShape& shape, double ratio) {
  const PaperModel* paper = paper_model(find_generator(schedule), shape);
  if (paper == nullptr) return std::nullopt;
  return paper->critical_ops(shape, ratio);
}

EquationOne equation_one(const PaperModel& paper, const Schedule& schedule, const PipelineShape& shape,
                         const CostModel& costs) {
  EquationOne equation;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
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
      const double link = mean_of(costs.links->times()) + 2 * mean_of(costs.links->copies);
      equation.point_to_point += costs.links->alpha + link * schedule.micro_batch_scale;
    }
  }
  equation.critical = paper.critical_ops(shape, equation.forward > 0 ? equation.backward / equation.forward : 2);
  Sums(paper, schedule, shape, CostTable(schedule, costs), equation).run();
  equation.seconds = (equation.forward + equation.point_to_point) * static_cast<double>(equation.critical.forwards) +
                     (equation.backward + equation.point_to_point) * static_cast<double>(equation.critical.backwards) +
                     equation.unoverlapped;
  return equation;
}

}  // namespace chimera
