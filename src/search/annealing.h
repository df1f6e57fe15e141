#pragma once

// The local search of `chimera search`: simulated annealing over the workers' orders of ops, and its random numbers. It
// starts from list schedules or schedules of generators. The searchers in search.cc, one per thread, call anneal() in
// rounds. Each move is timed by an Evaluator (evaluator.h), millions of times in a run.

#include <cstdint>
#include <functional>
#include <random>

#include "search/budget.h"
#include "search/evaluator.h"
#include "search/instance.h"

namespace chimera {

/// Random numbers that are the same on any machine: std::mt19937_64 is standardized, distributions are not.
/// (CounterRandom costs as much as timing ten ops.)
class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) : engine_(seed) {}
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Uniform in 0 .. bound-1, biased by less than bound / 2^64.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(engine_() % bound); }
  /// Seed for another source: 64 bits on any platform.
  std::uint64_t seed() { return engine_(); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 engine_;
};

/// Improves orders by simulated annealing (Kirkpatrick et al., Science 1983). A move shifts an op in its worker's
/// order; only orders that keep the memory limits (is_admissible() in instance.h) are timed. Minimizes the makespan
/// plus a small fraction of the mean time at which the workers end, which decides between equal makespans. Stops when
/// the makespan reaches `goal` or `phase` is over. Calls `improved` with each new best solution.
///
/// Returns the best solution, never worse than `start`. `start` must be admissible, and its ops must not wait for each
/// other in a cycle. Solution::origin of a better one is "local search from " and the origin of `start`.
[[nodiscard]] Solution anneal(const Instance& instance, Solution start, double goal, Phase phase, RandomSource& random,
                              const std::function<void(const Solution&)>& improved);

}  // namespace chimera
