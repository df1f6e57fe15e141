#pragma once

// Symmetric search: worker D-1-w of a bidirectional pipeline does for the up replica the same as worker w for the down
// replica. Only one replica and D/2f workers remain to arrange, so search improves faster. That symmetric schedules are
// among the best is observed, not proven.

#include <optional>
#include <vector>

#include "search/evaluator.h"
#include "search/instance.h"
#include "search/pareto_front.h"

namespace chimera {

/// Replica 0's problem on joined workers: workers that the symmetry maps onto each other become a single worker. Delays
/// are those between real workers.
struct FoldedProblem {
  Instance instance;
  std::vector<std::size_t> worker;  // [real worker]: its joined worker
};

/// Returns nullopt if there is one replica, the placement is not symmetric, links or micro-batches per replica differ,
/// corresponding workers have different limits, or one micro-batch of every replica does not fit at once.
[[nodiscard]] std::optional<FoldedProblem> fold(const SearchProblem& problem);

/// Returns replica 0's part of the orders.
[[nodiscard]] Orders fold_orders(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders);

/// Returns orders in which each replica repeats replica 0's.
[[nodiscard]] Orders unfold(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders);

/// A problem in both forms: of all workers and, if it is symmetric, of joined workers.
struct Arrangement {
  explicit Arrangement(const SearchProblem& of) : problem(of), whole(make_instance(of)), folded(fold(of)) {}

  const SearchProblem& problem;
  Instance whole;
  std::optional<FoldedProblem> folded;
};

/// Replaces `best` by `other` if that is faster.
void take_if_better(Solution& best, const Solution& other);

/// Adds a solution to the front unless it is dominated, and returns whether it is now the fastest. `instance` must be
/// one of the two in `arrangement`.
bool note(ParetoFront& front, const Arrangement& arrangement, const Instance& instance, const Solution& found);

}  // namespace chimera
