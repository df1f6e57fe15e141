#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "search/instance.h"

// Finds a schedule: given where the stages live, what ops cost and what workers may hold, an order of the ops that is
// as fast as can be found.

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

struct SearchProgress {
  double seconds = 0;
  double makespan = 0;  // best so far
  double lower_bound = 0;
  std::string origin;  // of the best so far
};

struct SearchOptions {
  std::optional<double> seconds = 10;      // none: until the iterations are spent, or the best is proven
  std::optional<std::int64_t> iterations;  // schedules timed; with no `seconds`, the result depends on nothing
                                           // but the problem, the starts and the seed
  std::uint64_t seed = 0;
  bool wants_front = true;  // else all the time goes to the problem itself, and `pareto` is what came of that
  std::function<void(const SearchProgress&)> progress = nullptr;  // called now and then, from the caller's thread
};

/// Makespan against memory: no find is better in both.
struct ParetoPoint {
  double makespan = 0;
  double peak_in_flight = 0;  // stage units
  std::string origin;
};

struct SearchResult {
  Schedule schedule;
  double makespan = 0;
  double lower_bound = 0;     // no order within the limits is faster; equal to the makespan where that was proven
  double gap = 0;             // makespan / lower bound - 1
  double peak_in_flight = 0;  // most stage units in flight on a worker (forwarded, weight gradient not yet done); a
                              // stage unit is a worker's share of the model, D/S of it one stage
  std::string origin;  // where the schedule came from: a generator's name, "list scheduling", "branch and bound",
                       // or "local search from" one of them
  std::vector<ParetoPoint> pareto;  // shortest makespan first: the result, and what other limits below it gave
};

/// Starts from `starts` (those that break a limit are models for list scheduling within it) and from list scheduling by
/// many rules. Two threads then improve the best by simulated annealing, first among the schedules in which all
/// replicas do the same (symmetry.h), then among all, and search a problem of at most kMostExactOps exactly
/// (searcher.h). The last quarter of the time goes to lower limits, for the Pareto front; it ends when all is proven.
/// At least one list schedule is made, however little time there is, so that there always is a result: it passes
/// check() and keeps to the limits.
///
/// Messages that share a link, blocking sends, all-reduces and updates do not guide the search, but makespans are those
/// of simulate(), which counts them: of what is found, the fastest with all of them is the result.
///
/// Throws ConfigError as CostTable does, where the costs are too large to add up, and where a limit leaves no room for
/// a single micro-batch: then it says which worker waits for what.
[[nodiscard]] SearchResult search(const SearchProblem& problem, const std::vector<Schedule>& starts,
                                  const SearchOptions& options);

}  // namespace chimera
