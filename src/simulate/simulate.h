#pragma once
// Times a schedule: costs in, timeline out.

#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Durations of one stage's ops, in any unit of time.
struct StageCosts {
  double forward = 1;
  double backward = 1;         // a whole B
  double input_gradient = 1;   // I
  double weight_gradient = 1;  // W
  [[nodiscard]] double of(OpKind kind) const;
};

struct CostModel {
  std::vector<StageCosts> stages;  // one for each stage of the schedule
  double latency = 0;              // of a message to another worker: pure delay, any number in flight

  /// Every stage alike. `share` is the time of one worker's whole share of the model for a full micro-batch: with S
  /// stages on D workers an op costs D/S of it, times the schedule's micro_batch_scale.
  [[nodiscard]] static CostModel uniform(const Schedule& schedule, const StageCosts& share, double latency = 0);
};

/// Runs every worker's ops in their order, each as soon as its inputs have arrived.
///
/// The lower bound holds for every order of these ops on these workers. It is the larger of (a) the longest path
/// through the dependencies, and (b) for each worker, the earliest that any of its ops can start, plus the work of all
/// of them, plus the least that must follow after any of them: a worker does nothing before the first, one op at a time
/// after, and whatever op it ends with has that much behind it. Throws ScheduleError where ops wait for each other in a
/// cycle, and ConfigError where costs are negative, not finite, or not one for each stage. Requires ids in range, as
/// check() assures.
[[nodiscard]] Timeline simulate(const Schedule& schedule, const CostModel& costs);

/// The same run with every forward as late as it can be without delaying another op: how the paper draws its figures.
/// At equal F and B this puts each op of Chimera into its slot. Makespan and order are those of `timeline`.
[[nodiscard]] Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline);

}  // namespace chimera
