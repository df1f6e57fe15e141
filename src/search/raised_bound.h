#pragma once
// Lower bounds by refutation: no schedule ends by a time if assuming so leads to a contradiction.

#include <cstddef>

#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

namespace chimera {

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

}  // namespace chimera
