#pragma once

// The Pareto front of makespan and memory in a search: it keeps a slower schedule only if it needs less memory. Each
// searcher in search.cc has its own front; Search merges them and returns the result as SearchResult::pareto.

#include <algorithm>
#include <utility>
#include <vector>

#include "search/evaluator.h"

namespace chimera {

/// A solution with its memory.
struct ParetoSolution : Solution {
  double peak = 0;  // activations in flight at once on the worker with most, in stage units (limits.h)
};

/// Set of solutions. None of them is at least as good as another in both makespan and memory.
class ParetoFront {
 public:
  /// Returns whether no solution in the set is at least as good in both.
  [[nodiscard]] bool admits(double makespan, double peak) const {
    return std::ranges::none_of(solutions_, [&](const ParetoSolution& find) { return covers(find, makespan, peak); });
  }
  /// Adds a solution for which admits() is true, and removes solutions that are not better than it in makespan or
  /// memory.
  void add(ParetoSolution find) {
    std::erase_if(solutions_, [&](const ParetoSolution& other) { return covers(find, other.makespan, other.peak); });
    solutions_.insert(std::ranges::upper_bound(solutions_, find.makespan, {}, &ParetoSolution::makespan),
                      std::move(find));
  }
  /// Returns the solutions by ascending makespan, and hence by descending peak.
  [[nodiscard]] const std::vector<ParetoSolution>& solutions() const { return solutions_; }

 private:
  static bool covers(const ParetoSolution& find, double makespan, double peak) {
    return find.makespan <= makespan * (1 + kRounding) && find.peak <= peak + kRounding;
  }

  std::vector<ParetoSolution> solutions_;
};

}  // namespace chimera
