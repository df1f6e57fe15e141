#pragma once

// Symmetric search. A bidirectional pipeline has replicas of the model that run down the workers and others that run
// up. In a symmetric schedule, worker w does for a down replica what worker D-1-w (of D) does for an up replica. To
// find such schedules, a problem is folded: workers that the symmetry maps onto each other become one joined worker,
// which runs only the ops of replica 0. With more than two replicas (f down and f up), the symmetry also maps each down
// replica onto the next. So with 2f replicas, the folded problem has one replica and D/2f workers, and a search
// improves faster. In experiments, symmetric schedules are among the best; this is not proven. search() searches both
// forms of a problem (ProblemForms). ParetoFront collects the solutions that no other one equals in both makespan and
// memory.

#include <algorithm>
#include <utility>

#include "search/evaluator.h"
#include "search/instance.h"

namespace chimera {

/// The ops of replica 0 on joined workers, as an Instance (instance.h): the form of a SearchProblem that the search
/// works on. Messages have the delays between the real workers.
struct FoldedProblem {
  Instance instance;
  std::vector<std::size_t> worker;  // [worker of the problem]: its joined worker
};

/// Returns the folded problem, or nullopt if there is none: if there is one replica, the placement is not symmetric,
/// workers, links, micro-batches or their number per replica differ, workers that the symmetry maps onto each other
/// have different limits, or one micro-batch of every replica does not fit in memory at once.
[[nodiscard]] std::optional<FoldedProblem> fold(const SearchProblem& problem);

/// Returns orders of the folded problem. Each joined worker gets the order of its first worker, with every op mapped to
/// replica 0. Unless `orders` is symmetric, the result may violate limits or deadlock, so the caller must check it.
[[nodiscard]] Orders fold_orders(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders);

/// Returns the orders of the whole problem, in which each replica has the order of replica 0 in `orders`.
[[nodiscard]] Orders unfold(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders);

/// A problem in both forms: as a whole and, if it is symmetric, folded. Borrows the problem.
struct ProblemForms {
  explicit ProblemForms(const SearchProblem& of) : problem(of), whole(make_instance(of)), folded(fold(of)) {}

  const SearchProblem& problem;
  Instance whole;
  std::optional<FoldedProblem> folded;
};

/// A solution with its memory.
struct ParetoSolution : Solution {
  double peak = 0;  // activations in flight at once on the worker with most, in stage units (instance.h)
};

/// The Pareto front of makespan and memory: none of its solutions is at least as good as another in both. Each searcher
/// in search.cc has its own front; Search merges them and returns the result as SearchResult::pareto.
class ParetoFront {
 public:
  /// Returns whether no solution in the front is at least as good in both, allowing for rounding.
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

/// Replaces `best` by `other` if `other` has a smaller makespan.
void replace_if_better(Solution& best, const Solution& other);

/// Adds a solution `found` of `instance` to the Pareto front of makespan and memory, unless another solution is at
/// least as good in both. `instance` must be one of the two in `forms`; orders of the folded one are unfolded first,
/// because the front is of the whole problem. Ignores orders that deadlock. Returns whether `found` is now the fastest.
bool note(ParetoFront& front, const ProblemForms& forms, const Instance& instance, const Solution& found);

}  // namespace chimera
