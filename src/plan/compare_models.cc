#include "plan/compare_models.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "plan/predict.h"

namespace chimera {
namespace {

void make_equal(CostModel& costs) {
  const auto count = static_cast<double>(costs.stages.size());
  StageCosts mean{0, 0, 0, 0};
  for (const StageCosts& stage : costs.stages) {
    mean.forward += stage.forward / count;
    mean.backward += stage.backward / count;
    mean.input_gradient += stage.input_gradient / count;
    mean.weight_gradient += stage.weight_gradient / count;
  }
  costs.stages.assign(costs.stages.size(), mean);
  double again = 0;
  for (const double seconds : costs.recompute) again += seconds / count;
  std::ranges::fill(costs.recompute, again);
}

}  // namespace

ModelComparison compare_models(Predictor& predictor, const Candidate& candidate) {
  PlannedSchedule planned = predictor.prepare(candidate);
  bool on_own_cores = false;
  const auto difference = [&](ModelComparison* whole = nullptr) {
    const double simulated =
        on_own_cores ? predictor.step_seconds_on_own_cores(planned) : predictor.step_seconds(planned, candidate);
    const double paper = equation_one(*planned.paper, *planned.schedule, candidate.shape, planned.model.costs).seconds;
    if (whole != nullptr) *whole = {paper, simulated, {}};
    return simulated - paper;
  };
  ModelComparison result;
  double left = difference(&result);
  const auto attribute = [&](const char* name, const std::function<void()>& remove) {
    remove();
    const double without = difference();
    result.causes.push_back({name, left - without});
    left = without;
  };
  attribute("shared cores", [&] { on_own_cores = true; });
  attribute("updates and overheads", [&] { remove_updates(planned.model); });
  attribute("messages", [&] { remove_messages(planned.model); });
  attribute("sums of gradients", [&] { remove_sums(planned.model); });
  attribute("unequal stages", [&] { make_equal(planned.model.costs); });
  result.causes.push_back({"order of ops", left});
  const double least = 0.005 * result.simulated_seconds;
  std::erase_if(result.causes, [&](const DifferenceCause& cause) { return std::abs(cause.seconds) < least; });
  std::ranges::stable_sort(result.causes, std::greater{},
                           [](const DifferenceCause& cause) { return std::abs(cause.seconds); });
  return result;
}

PossibleGains possible_gains(Predictor& predictor, const Candidate& candidate) {
  PossibleGains gains;
  PlannedSchedule planned = predictor.prepare(candidate);
  remove_messages(planned.model);
  remove_sums(planned.model);
  gains.free_network_seconds = predictor.step_seconds(planned, candidate);
  planned = predictor.prepare(candidate);
  planned.model.costs.recompute.clear();
  gains.without_recomputation_seconds = predictor.step_seconds(planned, candidate);
  return gains;
}

}  // namespace chimera
