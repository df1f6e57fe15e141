#pragma once

#include <cstdint>
#include <vector>

#include "search/instance.h"
#include "search/worker_bound.h"

namespace chimera {

/// A lower bound on the makespan of every order within the limits, from any state of the search.
///
/// Every op has a head, the earliest that it can start, and a tail, what must follow after it until the end: longest
/// paths through the dependencies, the queues of the lanes, and memory: where a chain alone would fill its worker with
/// h micro-batches in flight, its micro-batch k + h cannot start before its micro-batch k has ended there. A worker
/// runs one op at a time, so it needs at least as long as the best order of its own ops by themselves, each not before
/// its head and with its tail behind it, even if ops may be interrupted: then the op with the longest tail always goes
/// first (Jackson's rule; Carlier, EJOR 1982).
class LowerBound {
 public:
  explicit LowerBound(const Instance& instance);

  /// The bound before any op has run.
  double at_start();
  /// The bound after `done[lane]` ops of each lane, ended at `end[op]`; worker w is free from free[w] on.
  double after(const std::vector<std::int32_t>& done, const std::vector<double>& end, const std::vector<double>& free);

 private:
  void find_tails();
  void find_heads(const std::vector<std::int32_t>& done, const std::vector<double>& end,
                  const std::vector<double>& free);
  double of_room(std::size_t worker, const std::vector<std::int32_t>& done);

  const Instance& instance_;
  std::vector<std::size_t> lanes_;           // each after its input and the lane before it in its chain
  std::vector<std::int32_t> most_alone_;     // [chain]: h
  std::vector<double> head_;                 // [op]
  std::vector<double> tail_;                 // [op]
  std::vector<std::vector<OpWindow>> jobs_;  // [worker]
  std::vector<std::int64_t> room_;           // [worker]: micro-batches, counted as the smallest on it
  WorkerBound worker_bound_;
};

}  // namespace chimera
