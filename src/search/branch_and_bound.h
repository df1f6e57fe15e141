#pragma once
// Exact search, for small problems.

#include <optional>

#include "search/annealing.h"
#include "search/budget.h"
#include "search/instance.h"

namespace chimera {

/// No larger problem is tried: it would not end.
inline constexpr std::int32_t kMostExactOps = 96;

struct ExactResult {
  Solution best;
  bool proven = false;  // no order is faster than `best`
};

/// Goes through all orders that may be best, depth first, in the way of Giffler and Thompson (Operations Research
/// 1960): of the ops that could run next, let o be the one that would end first, on worker w. Before that end w starts
/// one of the ops that it has by then, or nothing. Nothing is of use only where o is a forward: any other op could be
/// moved there to no harm, while a forward holds memory from then on; and only if the worker could reach a limit.
///
/// What cannot beat the best is cut off: by a bound on each worker alone (heads, work and tails of its ops, with
/// interruptions allowed; Carlier, EJOR 1982), and by states met before: the same ops done, and everything that matters
/// later at the same time or earlier. Returns `start` or better; proven unless the phase ended first.
[[nodiscard]] ExactResult branch_and_bound(const Instance& instance, Solution start, Phase phase);

}  // namespace chimera
