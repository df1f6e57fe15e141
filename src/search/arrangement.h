#pragma once

#include <optional>
#include <string>

#include "search/annealing.h"
#include "search/evaluator.h"
#include "search/instance.h"
#include "search/search.h"

// A bidirectional pipeline looks the same from each of its replicas: what the down replica does on worker w, the up
// replica may do on worker D-1-w at the same time. A search among such symmetric schedules has one replica and D/2f
// workers to arrange, and finds better ones sooner; that they are among the best is seen, not proven.

// One problem in the forms that the methods need, and what they hand to each other.

namespace chimera {

/// The problem of replica 0 alone, with the workers that take each other's places joined into one, and the delays of
/// the messages between the real ones.
struct FoldedProblem {
  Instance instance;
  std::vector<std::size_t> worker;  // [real worker]: the joined one
};

/// None where there is one replica only, or replicas that are not alike: another number of micro-batches, another room
/// on a worker in the same place, workers that no symmetry moves onto each other, or no room for a micro-batch of every
/// replica at once.
[[nodiscard]] std::optional<FoldedProblem> fold(const SearchProblem& problem);

/// What replica 0 does in these orders of all replicas; on joined workers, as the first of them do it.
[[nodiscard]] Orders fold_orders(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders);

/// The orders of all replicas, each doing on its workers what replica 0 does on its own.
[[nodiscard]] Orders unfold(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders);

struct Arrangement {
  explicit Arrangement(const SearchProblem& of) : problem(of), whole(make_instance(of)), folded(fold(of)) {}

  const SearchProblem& problem;
  Instance whole;
  std::optional<FoldedProblem> folded;
};

/// The best orders so far, of all workers or of the joined ones, and what made them.
struct Best {
  Solution solution{{}, kStuck};
  std::string origin;
};

void take_if_better(Best& best, const Best& other);

/// Adds a find to the front, if it belongs there; whether it is now the fastest. `instance` is the one that it solves:
/// that of all workers or that of the joined ones.
bool note(ParetoFront& front, const Arrangement& arrangement, const Instance& instance, const Best& found);

}  // namespace chimera
