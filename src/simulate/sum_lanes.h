#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/dependencies.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "simulate/steps.h"

// The sums of gradients beside the ops: who waits for whom.

// How a step of a synchronous schedule ends: gradients are summed over the copies of each stage, then every worker
// updates the weights it holds.

namespace chimera {

/// The all-reduces of a step, on a lane of every worker beside its ops. A worker takes part in one sum at a time, in
/// the order in which it launches them, which is the same on all workers (place_all_reduces). A sum begins when all
/// workers that hold the parameter group have launched it and have done the sums that they launched before. Sums that
/// take no time are left out.
class SumLanes {
 public:
  /// `timeline` is given the sums.
  SumLanes(const Schedule& schedule, const CostTable& costs, Timeline& timeline);

  /// The worker launches its part in a sum once it has run the first `after` of its ops.
  void launch(std::size_t worker, ParameterGroupId group, double time, std::size_t after);

  struct Begun {
    ParameterGroupId group;
    double start = 0;
  };
  /// Begins the sums that nothing holds back any more.
  [[nodiscard]] std::vector<Begun> begin_ready();
  void end(ParameterGroupId group, double time);

  /// Whether all workers of a sum that has begun have launched another one.
  [[nodiscard]] bool has_next(ParameterGroupId group) const;
  /// Whether all sums that the worker has launched have ended.
  [[nodiscard]] bool is_free(std::size_t worker) const { return lanes_[worker].launched.empty(); }
  /// End of the last sum that the worker took part in.
  [[nodiscard]] double free_since(std::size_t worker) const { return lanes_[worker].free_since; }

 private:
  struct Lane {
    std::vector<AllReduceStart> launched;  // in order; the first one may run
    bool is_running = false;
    double free_since = 0;
  };
  struct Sum {
    std::size_t launches = 0;
    double last_launch = -1;
    std::size_t last_worker = 0;  // that launched it
    std::optional<Place> last_op;
  };

  [[nodiscard]] bool can_begin(ParameterGroupId group) const;
  [[nodiscard]] Begun begin(ParameterGroupId group);

  const CostTable& costs_;
  Timeline& timeline_;
  std::vector<std::vector<WorkerId>> groups_;  // [group]
  std::vector<Sum> sums_;                      // [group]
  std::vector<ParameterGroupId> complete_;     // launched by all, not begun
  std::vector<Lane> lanes_;                    // [worker]
};

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
