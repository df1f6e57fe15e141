#pragma once

// Lower bounds on the makespan of every order of ops within the search's memory limits. They show how far the best
// schedule can be from the optimum, and end the search when the best schedule reaches the bound. least_makespan() takes
// milliseconds. raise_bound() then tries to prove that no schedule meets a deadline, for one deadline after another;
// each proof raises the bound. The bound of simulate/lower_bound.h includes links, all-reduces and updates, but ignores
// memory limits; the search takes the larger bound.

#include <cstddef>

#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

namespace chimera {

/// Returns the largest of these bounds (instance.h explains chains and queues):
/// - The longest path through dependencies, queues and memory. Memory adds an edge: if a worker has memory for h
///   micro-batches of a chain, micro-batch k + h cannot start there before micro-batch k has ended. The longest paths
///   also give each op a head (earliest start) and a tail (least time from its end to the end of the schedule).
/// - For each worker, the makespan of Jackson's preemptive schedule of its ops, which always runs the op with the
///   longest tail of those whose head has passed. Source: Carlier, EJOR 1982.
/// - For each worker, a bound from its memory instead of preemption: with memory for h micro-batches, at most h
///   forwards start before a micro-batch is released. It is computed forward and backward in time.
[[nodiscard]] double least_makespan(const Instance& instance);

/// Result of raise_bound().
struct RaisedBound {
  double bound = 0;   // lower bound of the makespan
  WindowState state;  // facts that are true of every schedule faster than `makespan`
};

/// Raises the lower bound `bound` towards `makespan`, the makespan of the best known schedule. The result is about the
/// largest deadline for which Windows (windows.h) proves that no schedule meets it. Uses Windows::narrow() first, then
/// the slower Windows::probe(). If no schedule can be faster than `makespan`, returns `makespan` and an empty state. If
/// a worker has more than kMaxNarrowedOps ops, returns `bound` and an empty state. When `phase` (budget.h) ends,
/// returns the bound that is proven so far.
[[nodiscard]] RaisedBound raise_bound(const Instance& instance, double bound, double makespan, Phase phase);

/// Maximum number of ops of a worker for Windows.
inline constexpr std::size_t kMaxNarrowedOps = 480;

}  // namespace chimera
