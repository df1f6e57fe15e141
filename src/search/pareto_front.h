#pragma once

// Results of the search that are worth keeping: a slower schedule only if it needs less memory. Each searcher has a
// front of its own; search.cc merges them and reports the result as SearchResult::pareto.

#include <algorithm>
#include <utility>
#include <vector>

#include "search/evaluator.h"

namespace chimera {

/// Orders of all workers, found by the search.
struct Find : Solution {
  double peak = 0;  // maximum of the stage units in flight on a worker
};

/// Finds that no other find beats in makespan and memory.
class ParetoFront {
 public:
  [[nodiscard]] bool admits(double makespan, double peak) const {
    return std::ranges::none_of(finds_, [&](const Find& find) { return covers(find, makespan, peak); });
  }
  /// Adds a find, and removes those that it beats. Requires admits().
  void add(Find find) {
    std::erase_if(finds_, [&](const Find& other) { return covers(find, other.makespan, other.peak); });
    finds_.insert(std::ranges::upper_bound(finds_, find.makespan, {}, &Find::makespan), std::move(find));
  }
  /// Ascending makespan, hence descending peak.
  [[nodiscard]] const std::vector<Find>& finds() const { return finds_; }

 private:
  static bool covers(const Find& find, double makespan, double peak) {
    return find.makespan <= makespan * (1 + kRounding) && find.peak <= peak + kRounding;
  }

  std::vector<Find> finds_;
};

}  // namespace chimera
