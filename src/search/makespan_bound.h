#pragma once

// Lower bounds on the makespan of every order within the search's memory limits. They tell how far the best schedule
// can be from the optimum, and end the search when it is reached. least_makespan() takes milliseconds and uses what
// holds without a deadline; raise_bound() then refutes one deadline after another. The bound of simulate/lower_bound.h
// knows links, all-reduces and updates, but no limits; the search takes the larger one.

#include <cstddef>

#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

namespace chimera {

/// Returns the largest of these bounds:
/// - the longest path through dependencies, lanes and memory: if a chain's worker has room for h of its micro-batches,
///   micro-batch k + h cannot start before micro-batch k has ended there. It gives each op a head (earliest start) and
///   a tail (least time after its end);
/// - for each worker, the makespan of Jackson's preemptive schedule of its ops with their heads and tails (Carlier,
/// EJOR
///   1982);
/// - for each worker, the same with its memory in place of preemption, forward and backward in time: at most `room`
///   forwards start before a micro-batch is released.
[[nodiscard]] double least_makespan(const Instance& instance);

struct RaisedBound {
  double bound = 0;
  WindowState state;  // facts true of every schedule that beats the best
};

/// Raises `bound` towards `makespan`, which some schedule has, to about the largest makespan that Windows refutes: by
/// narrowing, then by probing. With more than kMostNarrowedOps ops on a worker, `bound` stays and the state is empty.
[[nodiscard]] RaisedBound raise_bound(const Instance& instance, double bound, double makespan, Phase phase);

inline constexpr std::size_t kMostNarrowedOps = 480;

}  // namespace chimera
