#pragma once
// The sums of gradients beside the ops: who waits for whom.

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

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

}  // namespace chimera
