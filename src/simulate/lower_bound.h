#pragma once
// A makespan that no order of a schedule's ops on its workers can undercut.

#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// A lower bound on the makespan of every order of these ops on these workers, with or without a limit on memory.
///
/// *Flow.* The micro-batches of one replica cost the same, so let C(k) be the time when the k-th of them (in whatever
/// order) has passed a given stage and kind of op. For it, k of them must have arrived before, and a worker runs one op
/// at a time, so an op of duration p gives C(k) >= max(A(k), C(k-1)) + p, where A(k) is the k-th arrival: C(k) of the
/// op before plus the message's time; on a link that carries one message at a time, likewise. Solved along the path
/// of a micro-batch: the k-th op of a class (replica, stage, kind) starts no earlier than r + (k-1) dr, with r the
/// length of the path to it and dr the longest duration on that path, its own included. (A recomputation takes its
/// worker's time, but waits for no gradient, so that the path is none the longer.) Read backwards in time, the j-th
/// last op of a class has q + (j-1) dq behind it; q ends with the all-reduce and the update of its stage.
///
/// *Worker.* A worker thus has ops with heads, bodies and tails, of which it runs one at a time. Running always the
/// arrived op with the longest tail, interrupting others, is optimal where ops may be interrupted (Jackson's
/// preemptive schedule: Carlier, EJOR 11, 1982); what may not be interrupted takes no less. Its makespan, the largest
/// least head + sum of bodies + least tail over all subsets of the worker's ops, is the bound; the largest over all
/// workers is returned. It contains the longest path (a subset of one) and head + work + tail (all of the worker).
///
/// *Pairs.* A pair takes no less than either of its ops, so that flows are as they are without. Where the schedule has
/// pairs, and running them together saves time, the body of every F, B and I is the part that it takes of a pair,
/// recomputation apart: the worker has a pair for as long as both parts last one after the other, and each of these
/// starts and ends within it. So the bound holds for every order with whatever pairs.
///
/// That takes ops times classes on a worker. Where a worker has more than 16 classes and the product is above 2^24, the
/// bound is the longest path and, for each worker, head + work + tail: linear in the ops. Where ops are missing or
/// doubled, or the replicas have more than 2^22 stages together, it is the work of the busiest worker.
[[nodiscard]] double lower_bound(const Schedule& schedule, const CostTable& costs);

/// What all ops take on one core, one after the other.
[[nodiscard]] double work_of_ops(const Schedule& schedule, const CostTable& costs);

}  // namespace chimera
