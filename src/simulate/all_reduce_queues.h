#pragma once

// The all-reduces of gradients in a synchronous step. They run beside the ops: each worker has a queue of its
// all-reduces, like a communication stream of a GPU. PipelineState (pipeline_state.h) calls launch() at the places that
// place_all_reduces() (schedule/place_all_reduces.h) has chosen. The event loop of the simulation (the clock:
// simulate.cc or shared_cores.cc) calls begin_ready(), computes when an all-reduce ends, and then calls
// PipelineState::end_sum(), which calls end().
//
//     worker 0   ops   | F F B B B        |          launch: the worker has all its gradients of the stage
//                queue |       [== sum ==]|          start:  all workers with the stage have launched it

#include <algorithm>
#include <cstddef>

#include "schedule/dependencies.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/cost_table.h"

namespace chimera {

/// The queues of all workers. Each all-reduce sums the gradients of a parameter group: a stage, or the matrix that the
/// first and the last stage of a tied model share. A worker runs one all-reduce at a time, in the order of launch,
/// which is the same on all workers (schedule/place_all_reduces.h). An all-reduce starts when all workers that hold the
/// parameter group have launched it and finished earlier ones. All-reduces that take no time are left out.
class AllReduceQueues {
 public:
  /// Records all-reduces in `timeline`. Borrows `costs` and `timeline`.
  AllReduceQueues(const Schedule& schedule, const CostTable& costs, Timeline& timeline)
      : costs_(costs),
        timeline_(timeline),
        groups_(gradient_groups(schedule.placement, costs.sums().tied)),
        sums_(groups_.size()),
        queues_(schedule.workers.size()) {}

  /// Called at `time`, when the worker launches the all-reduce of `group`, after its first `after` ops.
  void launch(std::size_t worker, ParameterGroupId group, double time, std::size_t after) {
    if (costs_.all_reduce(group) <= 0) return;
    queues_[worker].launched.push_back({group, static_cast<std::int64_t>(after)});
    Sum& sum = sums_[group.index()];
    if (time > sum.last_launch || (time == sum.last_launch && worker < sum.last_worker)) {
      sum.last_launch = time;
      sum.last_worker = worker;
      sum.last_op = after > 0 ? std::optional(Place{worker, after - 1}) : std::nullopt;
    }
    if (++sum.launches == groups_[group.index()].size()) complete_.push_back(group);
  }

  /// An all-reduce that starts.
  struct StartedAllReduce {
    ParameterGroupId group;
    double start = 0;
  };
  /// Starts all all-reduces that can start now, and returns them. The caller must call end() for each.
  [[nodiscard]] std::vector<StartedAllReduce> begin_ready() {
    std::vector<StartedAllReduce> begun;
    std::erase_if(complete_, [&](ParameterGroupId group) {
      const bool begins = can_begin(group);
      if (begins) begun.push_back(begin(group));
      return begins;
    });
    return begun;
  }
  /// Ends a running all-reduce at `time`. Others may then be able to start.
  void end(ParameterGroupId group, double time) {
    for (const WorkerId worker : groups_[group.index()]) {
      Queue& queue = queues_[worker.index()];
      queue.launched.erase(queue.launched.begin());
      queue.is_running = false;
      queue.free_since = time;
      timeline_.workers[worker.index()].all_reduces.back().end = time;
    }
    sums_[group.index()] = {};
  }

  /// Returns the workers that hold the parameter group.
  [[nodiscard]] const std::vector<WorkerId>& holders(ParameterGroupId group) const { return groups_[group.index()]; }
  /// Returns whether all workers of a running all-reduce have launched another one.
  [[nodiscard]] bool has_next(ParameterGroupId group) const {
    return std::ranges::all_of(groups_[group.index()],
                               [&](WorkerId worker) { return queues_[worker.index()].launched.size() > 1; });
  }
  /// Returns whether all all-reduces that the worker has launched have ended.
  [[nodiscard]] bool is_free(std::size_t worker) const { return queues_[worker].launched.empty(); }
  /// Returns the end of the worker's last all-reduce; 0 if it had none.
  [[nodiscard]] double free_since(std::size_t worker) const { return queues_[worker].free_since; }

 private:
  struct Queue {
    std::vector<AllReduceStart> launched;  // all-reduces in order of launch; only the first may run
    bool is_running = false;               // whether the first one runs
    double free_since = 0;                 // end of the last all-reduce
  };
  /// The next all-reduce of a parameter group.
  struct Sum {
    std::size_t launches = 0;      // number of workers that have launched it
    double last_launch = -1;       // time of the last launch
    std::size_t last_worker = 0;   // worker of the last launch
    std::optional<Place> last_op;  // its op before the launch; nothing: it was before all ops
  };

  [[nodiscard]] bool can_begin(ParameterGroupId group) const {
    return std::ranges::all_of(groups_[group.index()], [&](WorkerId worker) {
      const Queue& queue = queues_[worker.index()];
      return !queue.is_running && queue.launched.front().group == group;
    });
  }
  [[nodiscard]] StartedAllReduce begin(ParameterGroupId group) {
    const Sum& launched = sums_[group.index()];
    TimedAllReduce sum{.group = group, .start = launched.last_launch, .launched_by = launched.last_op};
    for (const WorkerId worker : groups_[group.index()]) {
      const double free = queues_[worker.index()].free_since;
      if (free <= sum.start) continue;
      sum.start = free;
      sum.launched_by = timeline_.workers[worker.index()].all_reduces.back().launched_by;
    }
    for (const WorkerId worker : groups_[group.index()]) {
      Queue& queue = queues_[worker.index()];
      queue.is_running = true;
      sum.after = static_cast<std::size_t>(queue.launched.front().after);
      timeline_.workers[worker.index()].all_reduces.push_back(sum);
    }
    return {group, sum.start};
  }

  const CostTable& costs_;
  Timeline& timeline_;
  WorkerGroups groups_;                     // [parameter group]: workers that hold it
  std::vector<Sum> sums_;                   // [parameter group]
  std::vector<ParameterGroupId> complete_;  // launched by all workers, but not started
  std::vector<Queue> queues_;               // [worker]
};

}  // namespace chimera
