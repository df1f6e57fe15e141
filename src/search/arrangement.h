#pragma once
// One problem in the forms that the methods need, and what they hand to each other.

#include <optional>
#include <string>

#include "search/annealing.h"
#include "search/evaluator.h"
#include "search/instance.h"
#include "search/pareto.h"
#include "search/symmetry.h"

namespace chimera {

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
