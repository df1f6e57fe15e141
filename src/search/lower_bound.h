#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

namespace chimera {

/// An op of a worker: its earliest start `head`, and the least time `tail` after its end.
struct OpWindow {
  double head = 0;
  double duration = 0;
  double tail = 0;
  bool takes = false;     // memory, at its start
  bool releases = false;  // memory, at its end
};

/// Lower bounds on the end of a worker's jobs and their tails. Keeps its buffers between calls.
class WorkerBound {
 public:
  /// Bound with preemption: the job with the longest tail runs first (Jackson's rule; Carlier, EJOR 1982). Sorts jobs
  /// by head.
  double of_work(std::vector<OpWindow>& jobs);

  /// Bound from memory: at most `room` takers start before a releaser ends, and another per ended releaser. Returns 0
  /// if no taker must wait.
  ///
  /// The k-th taker to start needs k - room ended releasers; their earliest end is its turn. For each tail q, consider
  /// the jobs with tails of at least q: the i-th taker to arrive starts no earlier than turn i. Taking the longest
  /// takers first leaves the least work at any time, so this ends no later than any schedule; q follows.
  double of_room(std::vector<OpWindow>& jobs, std::int64_t room);

  /// of_room() backward in time. Swaps heads and tails.
  double of_room_backwards(std::vector<OpWindow>& jobs, std::int64_t room);

 private:
  void find_turns(const std::vector<OpWindow>& jobs, std::int64_t room);
  double end_of_work(const std::vector<OpWindow>& jobs, double least_tail);

  std::vector<OpWindow> waiting_;      // a heap, longest tail first
  std::vector<double> ends_;           // [i]: earliest end of i + 1 releasers
  std::vector<double> turns_;          // [i-th taker to start]
  std::vector<OpWindow> by_duration_;  // takers, longest first
  std::vector<double> tails_;          // all distinct tails
};

struct RaisedBound {
  double bound = 0;
  WindowState state;  // facts true of every schedule that beats the best
};

/// Raises `bound` towards `makespan`, which some schedule has, to about the largest makespan that Windows refutes: by
/// narrowing, then by probing. With more than kMostNarrowedOps ops on a worker, `bound` stays and the state is empty.
[[nodiscard]] RaisedBound raise_bound(const Instance& instance, double bound, double makespan, Phase phase);

inline constexpr std::size_t kMostNarrowedOps = 480;

/// Lower bound on the makespan of every order within the limits, from any state of the search.
///
/// Heads and tails of ops are longest paths through dependencies, lanes and memory: if a chain's worker has room for h
/// of its micro-batches, micro-batch k + h cannot start before micro-batch k has ended there.
class LowerBound {
 public:
  explicit LowerBound(const Instance& instance);

  double at_start();
  /// Returns the bound after `done[lane]` ops of each lane, which ended at `end[op]`; worker w is free from free[w].
  double after(const std::vector<std::int32_t>& done, const std::vector<double>& end, const std::vector<double>& free);

 private:
  void find_tails();
  void find_heads(const std::vector<std::int32_t>& done, const std::vector<double>& end,
                  const std::vector<double>& free);
  double of_room(std::size_t worker, const std::vector<std::int32_t>& done);

  const Instance& instance_;
  std::vector<std::size_t> lanes_;           // each after its inputs
  std::vector<std::int32_t> most_alone_;     // [chain]: h
  std::vector<double> head_;                 // [op]
  std::vector<double> tail_;                 // [op]
  std::vector<std::vector<OpWindow>> jobs_;  // [worker]
  std::vector<std::int64_t> room_;           // [worker]: micro-batches of the smallest size there
  WorkerBound worker_bound_;
};

}  // namespace chimera
