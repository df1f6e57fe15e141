#pragma once

// Searches for the fastest order of ops, given placement, costs and memory limits (`chimera search`).
//
//     SearchProblem --> Instance --> list schedules --> annealing, branch and bound --> simulate() --> SearchResult
//
// The generators of schedules (generate/) make only a few regular patterns; for unequal stages or little memory, other
// orders are faster. The result is a Schedule like any other, with a lower bound of the makespan of all orders. An
// Instance (instance.h) is the problem as arrays of numbers.

#include <functional>

#include "schedule/schedule.h"
#include "search/instance.h"

namespace chimera {

/// State of a running search.
struct SearchProgress {
  double seconds = 0;      // since the start of the search
  double makespan = 0;     // of the best schedule so far
  double lower_bound = 0;  // of all orders
  std::string origin;      // how the best schedule was found, as SearchResult::origin
};

/// Limits of a search.
struct SearchOptions {
  std::optional<double> seconds = 10;  // time limit; empty: none
  // Maximum number of schedules to time; empty: no limit. Without `seconds`, the result depends only on problem, starts
  // and seed.
  std::optional<std::int64_t> iterations;
  std::uint64_t seed = 0;   // of random numbers
  bool wants_front = true;  // whether to spend a quarter of the time on lower memory limits, for the Pareto front
  // Called in the caller's thread for better schedules and, with several cores, every 0.1 s
  std::function<void(const SearchProgress&)> progress = nullptr;
};

/// A schedule of the Pareto front: no other schedule found is at least as good in both makespan and peak.
struct ParetoPoint {
  double makespan = 0;
  double peak_in_flight = 0;  // as SearchResult::peak_in_flight
  std::string origin;
};

/// The fastest schedule found, and what is known about the others.
struct SearchResult {
  Schedule schedule;
  double makespan = 0;
  double lower_bound = 0;  // lower bound of all orders within the limits; equals the makespan if proven optimal
  double gap = 0;          // makespan / lower bound - 1
  // Activations in flight (forward begun, weight gradient not done) on the worker with most, in stage units
  // (instance.h)
  double peak_in_flight = 0;
  std::string origin;  // a generator's name, "list scheduling", "branch and bound", or "local search from" one of them
  std::vector<ParetoPoint> pareto;  // ascending makespan; includes solutions under lower limits

  /// Sets lower_bound and gap. If `bound` equals the makespan up to rounding errors, lower_bound becomes the makespan.
  void set_lower_bound(double bound) {
    lower_bound = makespan <= bound * (1 + kRounding) ? makespan : bound;
    gap = lower_bound > 0 ? makespan / lower_bound - 1 : 0;
  }
};

/// Searches for fast orders, in these steps:
/// 1. Times `starts`, and list schedules by many rules. List scheduling adapts starts that exceed a memory limit.
/// 2. Two threads improve the best orders by simulated annealing, first among symmetric schedules (problem_forms.h),
///    then among all. They search problems of at most kMaxExactOps ops exactly (branch_and_bound.h).
/// 3. The last quarter of the time goes to lower memory limits, for the Pareto front.
///
/// Ends early if the result is proven optimal. There is always a result, at least a list schedule, which passes check()
/// and keeps the limits. Blocks the calling thread until the end; the other threads end before it returns.
///
/// The search itself ignores link contention, blocking sends, all-reduces, updates and unequal times of slices. But the
/// result is the schedule with the smallest makespan by simulate(), which includes them.
///
/// Throws ConfigError if a cost is invalid (see CostTable), if the costs are too large to add up, or if a limit leaves
/// no room for a single micro-batch.
[[nodiscard]] SearchResult search(const SearchProblem& problem, const std::vector<Schedule>& starts,
                                  const SearchOptions& options);

}  // namespace chimera
