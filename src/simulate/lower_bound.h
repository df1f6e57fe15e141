#pragma once

// A lower bound of the makespan: no order of the same ops on the same workers can be faster. simulate() reports it with
// every timeline, so that users see how far a schedule can be from the best order. `chimera search` has a second bound
// (search/makespan_bound.h), which also uses memory limits but is for smaller problems.

#include "schedule/schedule.h"
#include "simulate/cost_table.h"

namespace chimera {

/// Returns a lower bound on the makespan of every order of these ops on these workers, regardless of memory limits.
///
/// *Flow.* Workers run one op at a time, and links carry one message at a time, so micro-batches pass each op one after
/// another. A *class* is the ops of one replica, stage and kind. The path to a class is the ops and messages through
/// which a micro-batch must pass before. Hence the k-th op of a class starts no earlier than the length of this path,
/// plus k - 1 times the longest duration on it. Recomputation is not on the path, because it needs no gradient. In the
/// same way, the j-th last op is followed by at least the path to the end, with the all-reduce and the update, plus j -
/// 1 times the longest duration on that path.
///
/// *Worker.* Each op thus has a head (earliest start), a body (duration) and a tail (time that must follow it). A
/// worker's bound is the makespan of Jackson's preemptive schedule (Carlier, EJOR 11, 1982), which always runs the op
/// with the longest tail of those that can start. It equals the maximum, over all subsets of the worker's ops, of the
/// smallest head + the sum of bodies + the smallest tail.
///
/// *Slices.* If micro-batches run in slices: in the flow, a slice counts as a micro-batch that takes the time of the
/// shortest slice. Another bound of a worker is its smallest head + all its work + its smallest tail. If the work of
/// micro-batches differs (CostModel::micro_batches), they count like slices.
///
/// *Pairs.* A pair is a forward and a backward that may run at once. If this saves time, the body of each op of a pair
/// is its part of the pair's time. The flow uses full durations.
///
/// If a worker has more than 16 classes, and ops times classes exceed 2^24, the bound is linear in the ops: the longest
/// path, and smallest head + work + smallest tail of each worker. If ops are missing or duplicated, or the replicas
/// have more than 2^22 stages together, it is the work of the busiest worker.
[[nodiscard]] double lower_bound(const Schedule& schedule, const CostTable& costs);

/// Returns the sum of the durations of all ops of all workers.
[[nodiscard]] double work_of_ops(const Schedule& schedule, const CostTable& costs);

}  // namespace chimera
