#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Copies of the activations of one forward. Positions are in the worker's list of ops.
struct OffloadCopies {
  std::size_t forward = 0;
  std::size_t backward = 0;
  double out_end = 0;   // when the device's memory is free
  double load = 0;      // when the program starts the load, which allocates memory on the device
  double load_end = 0;  // when the backward can start
};

/// The copies of offloaded activations (offloaded_forwards()). Each worker has one engine, which makes one copy at a
/// time, in the order of the program: to host memory from the end of the forward on, to the device from the end of the
/// op before the load. The worker waits for its previous copy to host memory before it starts another, and for that of
/// the same activations before a load.
class CopyEngines {
 public:
  CopyEngines(const Schedule& schedule, const CostTable& costs);

  /// Starts the copies that the end at `time` of the ops from `begin` to before `end` allows. Returns when the worker
  /// can run the next op. Call it in the order of the worker's ops.
  double end_ops(std::size_t worker, std::size_t begin, std::size_t end, double time);
  /// Returns when the activations of the ops from `begin` to before `end` are on the device; 0 if they never leave it.
  [[nodiscard]] double loaded(std::size_t worker, std::size_t begin, std::size_t end) const;
  /// Returns the worker's copies by backward. Times are valid once all ops have ended.
  [[nodiscard]] const std::vector<OffloadCopies>& copies(std::size_t worker) const { return engines_[worker].copies; }

 private:
  struct Engine {
    std::vector<OffloadCopies> copies;
    std::vector<double> seconds;       // [copy]
    std::vector<std::size_t> loads;    // [copy]: position of the op before which the load starts; ascending
    std::vector<std::int32_t> of_ops;  // [op]: copy, or -1
    std::size_t next_load = 0;
    double free = 0;
    double out_end = 0;  // of the last copy to host memory
  };

  std::vector<Engine> engines_;  // [worker]; empty: nothing is offloaded
};

}  // namespace chimera
