#pragma once

// A lower bound of the makespan: no order of the same ops on the same workers can be faster. simulate() reports it with
// every timeline, so that users see how far a schedule can be from the best order. `chimera search` has a second bound
// (search/makespan_bound.h), which also uses memory limits but is for smaller problems.

#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns a lower bound on the makespan of every order of these ops on these workers, regardless of memory limits.
///
/// *Flow.* Workers run one op at a time, and links carry one message at a time. So if C(k) is when the k-th micro-batch
/// of a replica has passed an op of duration p, C(k) >= max(A(k), C(k-1)) + p, where A(k) is the k-th arrival. Hence
/// the k-th op of a class (replica, stage, kind) starts no earlier than r + (k-1) dr, where r is the length of the path
/// to it and dr the longest duration on the path. Recomputation is not on the path, because it needs no gradient. At
/// least q + (j-1) dq follows the j-th last op; q includes the all-reduce and the update.
///
/// *Worker.* Each op thus has a head (earliest start), a body (duration) and a tail (time that must follow it). A
/// worker's bound is the makespan of Jackson's preemptive schedule (Carlier, EJOR 11, 1982), which always runs the op
/// with the longest tail of those that can start. It equals the maximum, over all subsets of the worker's ops, of the
/// smallest head + the sum of bodies + the smallest tail.
///
/// *Slices.* In the flow, a slice counts as a micro-batch that takes the time of the shortest slice. Another bound of a
/// worker is its smallest head + all its work + its smallest tail.
///
/// *Pairs.* If running pairs together saves time, the body of an F, B or I is its part of the pair's time. The flow
/// uses full durations.
///
/// If a worker has more than 16 classes, and ops times classes exceed 2^24, the bound is linear in the ops: the longest
/// path, and smallest head + work + smallest tail of each worker. If ops are missing or duplicated, or the replicas
/// have more than 2^22 stages together, it is the work of the busiest worker.
[[nodiscard]] double lower_bound(const Schedule& schedule, const CostTable& costs);

/// Returns the sum of all ops' durations.
[[nodiscard]] double work_of_ops(const Schedule& schedule, const CostTable& costs);

}  // namespace chimera
