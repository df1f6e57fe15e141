#pragma once

#include <string>
#include <vector>

#include "search/instance.h"

namespace chimera {

/// What was found, and how.
struct Find {
  Orders orders;  // of all workers
  double makespan = 0;
  double peak = 0;     // most stage units in flight on a worker
  std::string origin;  // the schedule or the method that it came from
};

/// Those finds that no other one beats in both makespan and memory.
class ParetoFront {
 public:
  /// Whether a find would enter.
  [[nodiscard]] bool admits(double makespan, double peak) const;
  /// Requires that it is admitted.
  void add(Find find);
  /// By makespan, shortest first; so by peak, highest first.
  [[nodiscard]] const std::vector<Find>& finds() const { return finds_; }

 private:
  std::vector<Find> finds_;
};

}  // namespace chimera
