#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/dependencies.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// All-reduces of a step, on one lane per worker in parallel to its ops. A worker runs one all-reduce at a time, in
/// launch order, which is the same on all workers (place_all_reduces). An all-reduce starts when all holders of the
/// parameter group have launched it and finished earlier ones. All-reduces that take no time are omitted.
class SumLanes {
 public:
  /// Adds all-reduces to `timeline`.
  SumLanes(const Schedule& schedule, const CostTable& costs, Timeline& timeline);

  /// Launches the worker's part in an all-reduce after its first `after` ops.
  void launch(std::size_t worker, ParameterGroupId group, double time, std::size_t after);

  struct Begun {
    ParameterGroupId group;
    double start = 0;
  };
  /// Starts and returns all that can start.
  [[nodiscard]] std::vector<Begun> begin_ready();
  void end(ParameterGroupId group, double time);

  /// Returns the workers that take part.
  [[nodiscard]] const std::vector<WorkerId>& holders(ParameterGroupId group) const { return groups_[group.index()]; }
  /// Whether all workers of a running all-reduce have launched another.
  [[nodiscard]] bool has_next(ParameterGroupId group) const;
  /// Whether all all-reduces launched by the worker have ended.
  [[nodiscard]] bool is_free(std::size_t worker) const { return lanes_[worker].launched.empty(); }
  /// End of the worker's last all-reduce.
  [[nodiscard]] double free_since(std::size_t worker) const { return lanes_[worker].free_since; }

 private:
  struct Lane {
    std::vector<AllReduceStart> launched;  // all-reduces in order of launch; only the first may run
    bool is_running = false;
    double free_since = 0;
  };
  struct Sum {
    std::size_t launches = 0;
    double last_launch = -1;
    std::size_t last_worker = 0;  // worker of the last launch
    std::optional<Place> last_op;
  };

  [[nodiscard]] bool can_begin(ParameterGroupId group) const;
  [[nodiscard]] Begun begin(ParameterGroupId group);

  const CostTable& costs_;
  Timeline& timeline_;
  WorkerGroups groups_;                     // [group]
  std::vector<Sum> sums_;                   // [group]
  std::vector<ParameterGroupId> complete_;  // launched by all, not started
  std::vector<Lane> lanes_;                 // [worker]
};

}  // namespace chimera
