#pragma once

// The local search of `chimera search`: simulated annealing over the workers' orders of ops, and its random numbers. It
// starts from simple schedules: of generators, or list schedules (list_scheduling.h). The searchers in search.cc, one
// per thread, call anneal() in rounds. Each move is timed by an Evaluator (evaluator.h), millions of times in a run.

#include <functional>
#include <random>

#include "search/budget.h"
#include "search/evaluator.h"
#include "search/instance.h"

namespace chimera {

/// Random numbers that are the same on any machine: the standard defines std::mt19937_64 exactly, but not its
/// distributions.
class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) : engine_(seed) {}
  /// Returns a number that is uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Returns a number that is uniform in 0 .. bound - 1, for bound > 0; the bias is less than bound / 2^64.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(engine_() % bound); }
  /// Returns a seed for another source.
  std::uint64_t seed() { return engine_(); }
  /// Returns true with this probability.
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 engine_;
};

/// Improves orders (of each worker's ops; instance.h) by simulated annealing (Kirkpatrick et al., Science 1983): it
/// makes random moves, and accepts a worse order with a probability that falls over time. A move shifts an op in its
/// worker's order; only orders that keep the memory limits (is_admissible() in instance.h) are timed. Minimizes the
/// makespan plus a small fraction of the mean time at which the workers end, which decides between equal makespans.
/// Stops when the makespan reaches `goal`, or `phase`, its part of the time or iterations of a search (budget.h), is
/// over. Calls `improved` with each new best solution.
///
/// Returns the best solution, never worse than `start`. `start` must be admissible, and its ops must not wait for each
/// other in a cycle. Solution::origin of a better one is "local search from " and the origin of `start`.
[[nodiscard]] Solution anneal(const Instance& instance, Solution start, double goal, Phase phase, RandomSource& random,
                              const std::function<void(const Solution&)>& improved);

}  // namespace chimera
