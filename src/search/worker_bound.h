#pragma once
// How long one worker needs for its own ops, when the rest of the pipeline only says when each may start and what
// follows it.

#include <cstdint>
#include <vector>

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

}  // namespace chimera
