#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/offload.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Copies of the activations of one forward; positions in the worker's list.
struct OffloadCopies {
  std::size_t forward = 0;
  std::size_t backward = 0;
  double out_end = 0;   // when the device's memory is free
  double load = 0;      // when memory is allocated on the device
  double load_end = 0;  // when the backward can start
};

/// Each worker's engine makes one copy at a time, in the order of its program: to host memory after the forward, to the
/// device from the op before the backward on (OffloadedForward::load). The worker goes on during a copy, but it waits
/// - after a forward, until the previous copy to host memory has ended;
/// - before the op at OffloadedForward::load, until the same activations have left the device;
/// - before the backward, until its activations are back.
class CopyEngines {
 public:
  CopyEngines(const Schedule& schedule, const CostTable& costs);

  /// Starts the copies that follow ops `begin` to `end` - 1, which end at `time`. Returns when the worker can go on.
  /// Call it in the order of ops.
  double end_ops(std::size_t worker, std::size_t begin, std::size_t end, double time);
  /// Returns when the activations of ops `begin` to `end` - 1 are on the device; 0 if they never leave it.
  [[nodiscard]] double loaded(std::size_t worker, std::size_t begin, std::size_t end) const;
  [[nodiscard]] const std::vector<OffloadCopies>& copies(std::size_t worker) const { return engines_[worker].copies; }

 private:
  struct Engine {
    std::vector<OffloadCopies> copies;
    std::vector<double> seconds;       // [copy]
    std::vector<std::size_t> loads;    // [copy], ascending
    std::vector<std::int32_t> of_ops;  // [op]: copy, or -1
    std::size_t next_load = 0;
    double free = 0;
    double out_end = 0;  // of the last copy to host memory
  };

  std::vector<Engine> engines_;  // [worker]; empty: nothing is offloaded
};

}  // namespace chimera
