#pragma once

// Simulates the copies of offloaded activations: to host memory after a forward, and back before its backward. Each
// worker has one copy engine, which makes the copies of both directions one at a time. PipelineState (pipeline_state.h)
// calls CopyEngines to find out how long a worker must wait. memory_over_time() (explain.h) calls it again to find out
// when activations are not on the device. schedule/offload.h decides which forwards are offloaded.

#include <algorithm>

#include "schedule/offload.h"
#include "schedule/schedule.h"
#include "simulate/cost_table.h"

namespace chimera {

/// The two copies of the activations of one forward. Times are in the unit of the costs.
struct OffloadCopies {
  std::size_t forward = 0;   // position of the forward in the worker's list
  std::size_t backward = 0;  // position of its backward
  double out_end = 0;        // end of the copy to host memory; the device's memory is then free
  double load = 0;           // start of the wait for the copy back; memory is then allocated on the device
  double load_end = 0;       // end of the copy back; the backward can then start
};

/// The copy engines of all workers. An engine makes its copies in the order of the worker's ops: to host memory after a
/// forward, and back to the device from the op before the backward on (OffloadedForward::load). The worker continues
/// during a copy, but it waits
/// - after a forward, until the previous copy to host memory has ended;
/// - before the op at OffloadedForward::load, until the same activations have left the device;
/// - before the backward, until its activations are back.
class CopyEngines {
 public:
  CopyEngines(const Schedule& schedule, const CostTable& costs) {
    const std::set<StageId>& stages = costs.offloaded_stages();
    if (!stages.empty()) engines_.resize(schedule.workers.size());
    for (std::size_t w = 0; w < engines_.size(); ++w) {
      const std::vector<Op>& ops = schedule.workers[w];
      Engine& engine = engines_[w];
      engine.of_ops.assign(ops.size(), -1);
      for (const OffloadedForward& each : offloaded_forwards(ops, stages, costs.pairs())) {
        engine.of_ops[each.forward] = engine.of_ops[each.backward] = static_cast<std::int32_t>(engine.copies.size());
        engine.copies.push_back({each.forward, each.backward});
        engine.seconds.push_back(costs.offload(ops[each.forward]));
        engine.loads.push_back(each.load);
      }
    }
  }

  /// Called when the worker's ops `begin` to `end` - 1 end, at `time`. Starts the copies that follow these ops. Returns
  /// the time at which the worker can continue. Call it in the order of a worker's ops.
  double end_ops(std::size_t worker, std::size_t begin, std::size_t end, double time) {
    if (engines_.empty()) return time;
    Engine& engine = engines_[worker];
    for (std::size_t i = begin; i < end; ++i) {
      if (engine.of_ops[i] < 0) continue;
      const auto copy = static_cast<std::size_t>(engine.of_ops[i]);
      if (engine.copies[copy].forward != i) continue;
      time = std::max(time, engine.out_end);
      engine.free = std::max(engine.free, time) + engine.seconds[copy];
      engine.out_end = engine.copies[copy].out_end = engine.free;
    }
    for (; engine.next_load < engine.loads.size() && engine.loads[engine.next_load] <= end; ++engine.next_load) {
      OffloadCopies& copies = engine.copies[engine.next_load];
      time = copies.load = std::max(time, copies.out_end);
      engine.free = copies.load_end = std::max(engine.free, time) + engine.seconds[engine.next_load];
    }
    return time;
  }
  /// Returns the time at which the activations for the worker's ops `begin` to `end` - 1 are back on the device; 0 if
  /// they never leave it.
  [[nodiscard]] double loaded(std::size_t worker, std::size_t begin, std::size_t end) const {
    double time = 0;
    if (engines_.empty()) return time;
    const Engine& engine = engines_[worker];
    for (std::size_t i = begin; i < end; ++i) {
      if (engine.of_ops[i] < 0) continue;
      const OffloadCopies& copies = engine.copies[static_cast<std::size_t>(engine.of_ops[i])];
      if (copies.backward == i) time = std::max(time, copies.load_end);
    }
    return time;
  }
  /// Returns the copies of a worker, in the order of their backwards. Requires that a stage is offloaded.
  [[nodiscard]] const std::vector<OffloadCopies>& copies(std::size_t worker) const { return engines_[worker].copies; }

 private:
  struct Engine {
    std::vector<OffloadCopies> copies;
    std::vector<double> seconds;       // [copy]: duration in one direction
    std::vector<std::size_t> loads;    // [copy]: OffloadedForward::load; ascending
    std::vector<std::int32_t> of_ops;  // [op]: index of its copies, or -1
    std::size_t next_load = 0;         // index of the next copy back
    double free = 0;                   // when the engine has made all copies so far
    double out_end = 0;                // of the last copy to host memory
  };

  std::vector<Engine> engines_;  // [worker]; empty: nothing is offloaded
};

}  // namespace chimera
