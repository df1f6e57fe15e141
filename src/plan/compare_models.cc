#include "plan/compare_models.h"

#include "simulate/cost_table.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace chimera {
namespace {

void remove_messages(StageModel& model) {
  model.costs.latency = 0;
  model.costs.links.reset();
}

void remove_sums(StageModel& model) {
  model.costs.all_reduce.reset();
  for (std::size_t s = 0; s < model.costs.optimizer.size() && s < model.gathers.size(); ++s)
    // The gather after a sharded update is communication, though it is part of the update's time.
    model.costs.optimizer[s] -= model.gathers[s];
  model.gathers.clear();
}

void remove_updates(StageModel& model) {
  model.costs.optimizer.clear();
  model.step_seconds = 0;
}

void remove_tensor_sums(StageModel& model) {
  for (std::size_t s = 0; s < model.tensor_sums.size(); ++s) {
    LayerTime& sums = model.tensor_sums[s];
    StageCosts& stage = model.costs.stages[s];
    stage.forward -= sums.forward;
    stage.input_gradient -= sums.input_gradient;
    // A whole backward is input and weight gradient; weight gradients have no sums.
    stage.backward -= sums.input_gradient;
    const bool again = !model.costs.recompute.empty() && model.costs.recompute[s] > 0;
    if (again) model.costs.recompute[s] -= sums.recompute;
    sums = {};
  }
}

/// Returns the part of all op time that is recomputation.
double recomputed_share(const Schedule& schedule, const CostModel& costs) {
  const CostTable table(schedule, costs);
  double all = 0;
  double again = 0;
  for (const auto& ops : schedule.workers) {
    for (const Op& op : ops) {
      all += table.duration(op);
      again += table.recomputation(op);
    }
  }
  return all > 0 ? again / all : 0;
}

void make_equal(CostModel& costs) {
  const auto count = static_cast<double>(costs.stages.size());
  StageCosts mean{0, 0, 0, 0};
  for (const StageCosts& stage : costs.stages)
    for (const auto time : kStageTimes) mean.*time += stage.*time / count;
  costs.stages.assign(costs.stages.size(), mean);
  double again = 0;
  for (const double seconds : costs.recompute) again += seconds / count;
  std::ranges::fill(costs.recompute, again);
}

}  // namespace

ModelComparison compare_models(Predictor& predictor, const Candidate& candidate) {
  PlannedSchedule planned = predictor.prepare(candidate);
  // Captured by reference: the first cause below sets it, and all later simulations keep it.
  bool on_own_cores = false;
  const auto difference = [&](ModelComparison* whole = nullptr) {
    const double simulated = predictor.step_seconds(planned, candidate, on_own_cores);
    const double paper = equation_one(*planned.paper, *planned.schedule, candidate.shape, planned.model.costs).seconds;
    if (whole != nullptr) *whole = {paper, simulated, {}};
    return simulated - paper;
  };
  ModelComparison result;
  // Causes are removed one after another from the same model, and each is charged with the change that its removal
  // makes. So the causes add up to the whole difference.
  double left = difference(&result);
  const auto attribute = [&](const char* name, const std::function<void()>& remove) {
    remove();
    const double without = difference();
    result.causes.push_back({name, left - without});
    left = without;
  };
  // The order matters only if effects overlap. Effects that slow everything down come first.
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
  // Both gains are relative to the candidate as it is.
  Candidate keeping = candidate;
  keeping.recompute.clear();
  keeping.blocks = {};
  gains.without_recomputation_seconds = predictor.step_seconds(predictor.prepare(keeping), keeping);
  return gains;
}

StepParts step_parts(Predictor& predictor, const Candidate& candidate) {
  PlannedSchedule planned = predictor.prepare(candidate);
  StepParts parts;
  const auto part = [&](StepPart which) -> double& { return parts.seconds[static_cast<std::size_t>(which)]; };
  double left = predictor.step_seconds(planned, candidate);
  const auto take_out = [&](StepPart which, void (*remove)(StageModel&)) {
    remove(planned.model);
    const double without = predictor.step_seconds(planned, candidate);
    part(which) = left - without;
    left = without;
  };
  take_out(StepPart::Sums, remove_sums);
  take_out(StepPart::Messages, remove_messages);
  take_out(StepPart::Updates, remove_updates);
  take_out(StepPart::TensorSums, remove_tensor_sums);
  // Without sums, messages and updates, what is left of a step is ops and bubbles.
  const double busy = predictor.predict(planned, candidate).busy_seconds;
  part(StepPart::Recomputation) = busy * recomputed_share(*planned.schedule, planned.model.costs);
  part(StepPart::Compute) = busy - part(StepPart::Recomputation);
  part(StepPart::Bubble) = left - busy;
  return parts;
}

}  // namespace chimera
