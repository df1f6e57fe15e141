#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "search/budget.h"
#include "search/instance.h"

// Local search: simulated annealing over the workers' orders.

namespace chimera {

/// The random numbers of a search: the same for the same seed, on any machine. The output of std::mt19937_64 is
/// standardised; that of the standard's distributions is not. (CounterRandom costs as much as timing ten ops.)
class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) : engine_(seed) {}
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Uniform in 0 .. bound-1, up to a bias below bound / 2^64.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(engine_() % bound); }
  /// A seed for another source: 64 bits, wherever size_t has fewer.
  std::uint64_t seed() { return engine_(); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 engine_;
};

struct Solution {
  Orders orders;
  double makespan = 0;
};

/// Moves ops of a worker to other places in its order, one at a time, and keeps what is faster, or not much slower:
/// less and less so as the phase passes (Kirkpatrick et al., Science 1983). What is compared is the makespan plus a
/// little of the mean over the workers of when they are done, which tells apart the many orders of equal makespan. Only
/// admissible moves are timed. Stops early at a makespan of `goal`. Calls `improved` with each new best.
///
/// Returns the best solution met, never worse than `start`, which must be admissible and free of cycles.
[[nodiscard]] Solution anneal(const Instance& instance, Solution start, double goal, Phase phase, RandomSource& random,
                              const std::function<void(const Solution&)>& improved);

}  // namespace chimera
