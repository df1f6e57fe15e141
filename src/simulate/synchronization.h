#pragma once
// How a step of a synchronous schedule ends: gradients are summed over the copies of each stage, then every worker
// updates the weights it holds.

#include <vector>

#include "schedule/dependencies.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "simulate/steps.h"
#include "simulate/sum_lanes.h"

namespace chimera {

/// The all-reduces that each worker launches in a step whose ops `step` has, as a program with them is lowered; none
/// where the costs have no all-reduces.
[[nodiscard]] std::vector<std::vector<AllReduceStart>> launches_of_step(const OpTable& step, const CostTable& costs);

/// The all-reduces that each worker launches: [step][worker]; empty where nothing is summed at the end of steps.
using Launches = std::vector<std::vector<std::vector<AllReduceStart>>>;

/// Those of all steps of a schedule, whose ops are in `ranges`.
[[nodiscard]] Launches launches_of_steps(const Schedule& schedule, const std::vector<std::vector<StepRange>>& ranges,
                                         const CostTable& costs);

/// Adds the all-reduces and the updates of one step to a timeline whose ops up to there are timed. Ops go on beside
/// sums, undisturbed (SumLanes). No worker updates before all have ended their ops and all-reduces: the gradients' norm
/// over all stages comes first (ReduceScalars of a program, which itself takes no time here).
class Synchronisation {
 public:
  Synchronisation(const Schedule& schedule, const CostTable& costs, Timeline& timeline);

  /// `step` has the ops of `ranges`. `free[w]` is when worker w has ended them, and becomes when it has ended its
  /// update.
  void end_step(const OpTable& step, const std::vector<StepRange>& ranges, std::vector<double>& free);

 private:
  void sum(const OpTable& step, const std::vector<StepRange>& ranges, const std::vector<double>& free);

  const CostTable& costs_;
  Timeline& timeline_;
  SumLanes lanes_;
  std::vector<double> update_;  // [worker], of all copies held
};

}  // namespace chimera
