#pragma once

// Symmetric search. A bidirectional pipeline has replicas of the model that run down the workers and others that run
// up. In a symmetric schedule, worker w does for a down replica what worker D-1-w (of D) does for an up replica. To
// find such schedules, a problem is folded: workers that the symmetry maps onto each other become one joined worker,
// which runs only the ops of replica 0. With more than two replicas (f down and f up), the symmetry also maps each down
// replica onto the next. So with 2f replicas, the folded problem has one replica and D/2f workers, and a search
// improves faster. In experiments, symmetric schedules are among the best; this is not proven. search() searches both
// forms of a problem (ProblemForms).

#include <optional>
#include <vector>

#include "search/evaluator.h"
#include "search/instance.h"
#include "search/pareto_front.h"

namespace chimera {

/// The ops of replica 0 on joined workers. Messages have the delays between the real workers.
struct FoldedProblem {
  Instance instance;
  std::vector<std::size_t> worker;  // [worker of the problem]: its joined worker
};

/// Returns the folded problem, or nullopt if there is none: if there is one replica, the placement is not symmetric,
/// workers, links, micro-batches or their number per replica differ, workers that the symmetry maps onto each other
/// have different limits, or one micro-batch of every replica does not fit in memory at once.
[[nodiscard]] std::optional<FoldedProblem> fold(const SearchProblem& problem);

/// Returns the orders of the folded problem: the ops of replica 0 in `orders`.
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

/// Replaces `best` by `other` if `other` is faster.
void replace_if_better(Solution& best, const Solution& other);

/// Adds a solution `found` of `instance` to the Pareto front of makespan and memory, unless another solution is better
/// in both. `instance` must be one of the two in `forms`; orders of the folded one are unfolded first, because the
/// front is of the whole problem. Ignores orders that deadlock. Returns whether `found` is now the fastest.
bool note(ParetoFront& front, const ProblemForms& forms, const Instance& instance, const Solution& found);

}  // namespace chimera
