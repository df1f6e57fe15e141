#pragma once

// The all-reduces of gradients at the end of a synchronous step. They run beside the ops, on a lane of their own for
// each worker; PipelineState launches them and a clock ends them.
//
//     worker 0   ops   | F F B B B        |          launch: when the worker's last gradient of the stage exists
//                lane  |       [== sum ==]|          start:  when all holders have launched it

#include <algorithm>
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
  SumLanes(const Schedule& schedule, const CostTable& costs, Timeline& timeline)
      : costs_(costs),
        timeline_(timeline),
        groups_(gradient_groups(schedule.placement, costs.sums().tied)),
        sums_(groups_.size()),
        lanes_(schedule.workers.size()) {}

  /// Launches the worker's part in an all-reduce after its first `after` ops.
  void launch(std::size_t worker, ParameterGroupId group, double time, std::size_t after) {
    if (costs_.all_reduce(group) <= 0) return;
    lanes_[worker].launched.push_back({group, static_cast<std::int64_t>(after)});
    Sum& sum = sums_[group.index()];
    if (time > sum.last_launch || (time == sum.last_launch && worker < sum.last_worker)) {
      sum.last_launch = time;
      sum.last_worker = worker;
      sum.last_op = after > 0 ? std::optional(Place{worker, after - 1}) : std::nullopt;
    }
    if (++sum.launches == groups_[group.index()].size()) complete_.push_back(group);
  }

  struct Begun {
    ParameterGroupId group;
    double start = 0;
  };
  /// Starts and returns all that can start.
  [[nodiscard]] std::vector<Begun> begin_ready() {
    std::vector<Begun> begun;
    std::erase_if(complete_, [&](ParameterGroupId group) {
      const bool begins = can_begin(group);
      if (begins) begun.push_back(begin(group));
      return begins;
    });
    return begun;
  }
  void end(ParameterGroupId group, double time) {
    for (const WorkerId worker : groups_[group.index()]) {
      Lane& lane = lanes_[worker.index()];
      lane.launched.erase(lane.launched.begin());
      lane.is_running = false;
      lane.free_since = time;
      timeline_.workers[worker.index()].all_reduces.back().end = time;
    }
    sums_[group.index()] = {};
  }

  /// Returns the workers that take part.
  [[nodiscard]] const std::vector<WorkerId>& holders(ParameterGroupId group) const { return groups_[group.index()]; }
  /// Whether all workers of a running all-reduce have launched another.
  [[nodiscard]] bool has_next(ParameterGroupId group) const {
    return std::ranges::all_of(groups_[group.index()],
                               [&](WorkerId worker) { return lanes_[worker.index()].launched.size() > 1; });
  }
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

  [[nodiscard]] bool can_begin(ParameterGroupId group) const {
    return std::ranges::all_of(groups_[group.index()], [&](WorkerId worker) {
      const Lane& lane = lanes_[worker.index()];
      return !lane.is_running && lane.launched.front().group == group;
    });
  }
  [[nodiscard]] Begun begin(ParameterGroupId group) {
    const Sum& launched = sums_[group.index()];
    TimedAllReduce sum{.group = group, .start = launched.last_launch, .launched_by = launched.last_op};
    for (const WorkerId worker : groups_[group.index()]) {
      const double free = lanes_[worker.index()].free_since;
      if (free <= sum.start) continue;
      sum.start = free;
      sum.launched_by = timeline_.workers[worker.index()].all_reduces.back().launched_by;
    }
    for (const WorkerId worker : groups_[group.index()]) {
      Lane& lane = lanes_[worker.index()];
      lane.is_running = true;
      sum.after = static_cast<std::size_t>(lane.launched.front().after);
      timeline_.workers[worker.index()].all_reduces.push_back(sum);
    }
    return {group, sum.start};
  }

  const CostTable& costs_;
  Timeline& timeline_;
  WorkerGroups groups_;                     // [group]
  std::vector<Sum> sums_;                   // [group]
  std::vector<ParameterGroupId> complete_;  // launched by all, not started
  std::vector<Lane> lanes_;                 // [worker]
};

}  // namespace chimera
