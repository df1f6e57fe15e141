#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

// How long one worker needs for its own ops, when the rest of the pipeline only says when each may start and what
// follows it.

// Lower bounds by refutation: no schedule ends by a time if assuming so leads to a contradiction.

namespace chimera {

/// An op of one worker: it starts at `head` at the earliest, and `tail` passes after its end at least.
struct OpWindow {
  double head = 0;
  double duration = 0;
  double tail = 0;
  bool takes = false;     // memory, from its start on
  bool releases = false;  // memory, at its end
};

/// Lower bounds on the end of a worker's jobs and their tails. Keeps its lists between calls, so that many cost little.
class WorkerBound {
 public:
  /// One job at a time, interruptions allowed: the job with the longest tail always goes first (Jackson's rule;
  /// Carlier, EJOR 1982). Sorts the jobs by their heads.
  double of_work(std::vector<OpWindow>& jobs);

  /// The same work where memory lets no more than `room` of the takers start before a releaser has ended, and one more
  /// for each that has.
  ///
  /// The k-th taker to start, whichever it is, has k - room releasers before it, so it starts no earlier than that many
  /// can have ended: a turn. Take the jobs whose tails are at least q, for each q: of the takers among them the i-th to
  /// arrive starts no earlier than the i-th turn, and the work that this leaves behind any time, the shortest takers
  /// last, ends no earlier than the real one does; q follows. Without the rule that room imposes this is of_work().
  double of_room(std::vector<OpWindow>& jobs, std::int64_t room);

  /// of_room() backwards in time: then the releasers take, and the takers release. Turns the jobs around.
  double of_room_backwards(std::vector<OpWindow>& jobs, std::int64_t room);

 private:
  void find_turns(const std::vector<OpWindow>& jobs, std::int64_t room);
  double end_of_work(const std::vector<OpWindow>& jobs, double least_tail);

  std::vector<OpWindow> waiting_;      // a heap, longest tail first
  std::vector<double> ends_;           // [i]: when i + 1 releasers may have ended
  std::vector<double> turns_;          // [i-th taker to start]
  std::vector<OpWindow> by_duration_;  // takers, longest first
  std::vector<double> tails_;          // all different ones
};

struct RaisedBound {
  double bound = 0;
  WindowState state;  // what is so in every schedule that beats the best known one
};

/// A lower bound between `bound` and `makespan`, which some schedule has: the largest of a few makespans between them
/// that Windows refutes, each halving what is left; first by narrowing, then by probing. Large problems
/// (kMostNarrowedOps on a worker) keep `bound`, and have no state.
[[nodiscard]] RaisedBound raise_bound(const Instance& instance, double bound, double makespan, Phase phase);

/// The most ops of a worker for which all pairs are looked at.
inline constexpr std::size_t kMostNarrowedOps = 480;

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
