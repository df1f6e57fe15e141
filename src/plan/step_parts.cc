#include "plan/step_parts.h"

#include <functional>

namespace chimera {
namespace {

/// The share of recomputation in the time of all ops.
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

}  // namespace

void remove_messages(StageModel& model) {
  model.costs.latency = 0;
  model.costs.links.reset();
}

void remove_sums(StageModel& model) { model.costs.all_reduce.reset(); }

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
    stage.backward -= sums.input_gradient;
    const bool again = !model.costs.recompute.empty() && model.costs.recompute[s] > 0;
    if (again) model.costs.recompute[s] -= sums.recompute;
    sums = {};
  }
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
  const double busy = predictor.predict(planned, candidate).busy_seconds;
  part(StepPart::Recomputation) = busy * recomputed_share(*planned.schedule, planned.model.costs);
  part(StepPart::Compute) = busy - part(StepPart::Recomputation);
  part(StepPart::Bubble) = left - busy;
  return parts;
}

}  // namespace chimera
