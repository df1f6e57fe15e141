#pragma once
// Local search: simulated annealing over the workers' orders.

#include <functional>

#include "search/budget.h"
#include "search/instance.h"
#include "search/random_source.h"

namespace chimera {

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
