#pragma once

#include <string>
#include <vector>

#include "search/instance.h"

// Results of the search that are worth keeping: a slower schedule only if it needs less memory.

namespace chimera {

/// A schedule found by the search.
struct Find {
  Orders orders;  // orders of all workers
  double makespan = 0;
  double peak = 0;     // maximum of the stage units in flight on a worker
  std::string origin;  // the generator or method that found it
};

/// Finds that no other find beats in makespan and memory.
class ParetoFront {
 public:
  [[nodiscard]] bool admits(double makespan, double peak) const;
  /// Requires admits().
  void add(Find find);
  /// Ascending makespan, hence descending peak.
  [[nodiscard]] const std::vector<Find>& finds() const { return finds_; }

 private:
  std::vector<Find> finds_;
};

}  // namespace chimera
