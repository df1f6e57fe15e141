#pragma once
// How a step of a synchronous schedule ends: gradients are summed over the copies of each stage, then every worker
// updates the weights it holds.

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "simulate/steps.h"

namespace chimera {

/// Where a worker launches the all-reduce of a stage.
struct LaunchPoint {
  StageId stage;                        // S: of the tied matrix
  std::optional<std::size_t> after_op;  // position of the stage's last backward; none: after the worker's last op
};

/// Where a worker launches the all-reduces of `held`, the stages of its gradient groups, in a step: as
/// CostModel::all_reduce_placement says, eager-opt by the idle time in `ops`, the times of its ops.
[[nodiscard]] std::vector<LaunchPoint> launch_points(const Schedule& schedule, const CostTable& costs,
                                                     std::size_t worker, const std::vector<StageId>& held,
                                                     StepRange range, const std::vector<TimedOp>& ops);

/// [worker]: the stages whose gradients it sums, distinct; `groups` are gradient_groups().
[[nodiscard]] std::vector<std::vector<StageId>> summed_stages(const std::vector<std::vector<WorkerId>>& groups,
                                                              std::size_t workers);

/// Adds the all-reduces and the update of one step to a timeline whose ops up to there are timed.
///
/// A worker launches the all-reduce of a stage as CostModel::all_reduce_placement says; where eager-opt asks for idle
/// time, it is that between the stage's last backward and the worker's last op. The sum starts when all workers that
/// hold the stage have launched it; each takes part in one at a time, in the order in which they become ready (then of
/// the stage). Ops go on meanwhile, undisturbed. The update follows a worker's last op and its last all-reduce.
class Synchronisation {
 public:
  Synchronisation(const Schedule& schedule, const CostTable& costs);

  /// `free[w]` is when worker w has ended its ops of the step, and becomes when it has ended its update.
  void end_step(const std::vector<StepRange>& ranges, std::vector<double>& free, Timeline& timeline);

 private:
  struct Launch {
    double time = -1;
    std::optional<Place> after;
  };

  void launch_all(std::size_t worker, StepRange range, double free, const WorkerTimeline& timeline);
  void launch(StageId stage, const Launch& launched);
  void reduce_all(Timeline& timeline);

  const Schedule& schedule_;
  const CostTable& costs_;
  std::vector<std::vector<WorkerId>> groups_;  // [stage]; empty without all-reduces, like the next three
  std::vector<std::vector<StageId>> held_;     // [worker], distinct
  std::vector<Launch> last_launch_;            // [stage], of this step
  std::vector<double> lane_free_;              // [worker]
  std::vector<double> update_;                 // [worker], of all copies held
};

}  // namespace chimera
