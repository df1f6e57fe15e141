#pragma once

// Searches for the fastest order of ops, given placement, costs and memory limits (`chimera search`).
//
//     SearchProblem --> Instance (dense numbers) --> list schedules --> annealing, branch and bound --> simulate()
//
// Generators only know a few patterns; uneven stages or little memory need orders of their own. The result is a
// Schedule like any other, with a lower bound that says how much faster another order could be.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "search/instance.h"

namespace chimera {

struct SearchProgress {
  double seconds = 0;
  double makespan = 0;  // best so far
  double lower_bound = 0;
  std::string origin;  // origin of the best schedule so far
};

struct SearchOptions {
  std::optional<double> seconds = 10;  // empty: no time limit
  // schedules timed; without `seconds`, the result depends only on problem, starts and seed
  std::optional<std::int64_t> iterations;
  std::uint64_t seed = 0;
  bool wants_front = true;                                        // false: all time goes to the given problem
  std::function<void(const SearchProgress&)> progress = nullptr;  // called periodically from the caller's thread
};

struct ParetoPoint {
  double makespan = 0;
  double peak_in_flight = 0;  // stage units
  std::string origin;
};

struct SearchResult {
  Schedule schedule;
  double makespan = 0;
  double lower_bound = 0;  // lower bound of all orders within the limits; equals the makespan if proven optimal
  double gap = 0;          // makespan / lower bound - 1
  // maximum of the stage units in flight on a worker (forward done, weight gradient not done)
  double peak_in_flight = 0;
  std::string origin;  // a generator's name, "list scheduling", "branch and bound", or "local search from" one of them
  std::vector<ParetoPoint> pareto;  // ascending makespan; includes solutions under lower limits

  /// Sets lower_bound, to the makespan if `bound` reaches it but for rounding, and gap.
  void set_lower_bound(double bound) {
    lower_bound = makespan <= bound * (1 + kRounding) ? makespan : bound;
    gap = lower_bound > 0 ? makespan / lower_bound - 1 : 0;
  }
};

/// Searches from `starts` (list scheduling adapts starts that exceed a limit) and from list schedules by many rules.
/// Two threads then improve the best by simulated annealing, first among symmetric schedules (arrangement.h), then
/// among all, and search problems of at most kMostExactOps ops exactly (search.cc). The last quarter of the time goes
/// to lower limits, for the Pareto front. The search ends early if all is proven. There is always a result, at least a
/// list schedule, which passes check() and keeps the limits.
///
/// Link contention, blocking sends, all-reduces, updates and unequal times of slices do not guide the search. But
/// simulate() includes them in the makespans that select the result.
///
/// Throws ConfigError as CostTable does, if the costs are too large to add up, and if a limit leaves no room for a
/// single micro-batch.
[[nodiscard]] SearchResult search(const SearchProblem& problem, const std::vector<Schedule>& starts,
                                  const SearchOptions& options);

}  // namespace chimera
