#pragma once
// Greedy list scheduling, for schedules whose order of ops has no formula. list_schedule() simulates a step: a worker
// that becomes free starts one of the ops whose inputs are ready: the op with the smallest *rank*, a priority, that its
// limits on activations (*credits*) allow. A generator gives the placement, the replica of each micro-batch, and the
// rank function. Schedules with slices, Hanayo and chimera-zb use it. deepest_first() is a variant with a fixed rank
// and limits of its own: every worker prefers the micro-batch that is farthest along. An input that arrives late then
// delays only the ops that need it, so the order suits high latency and unequal op times. with_fewest_credits() tries
// several limits and keeps the lowest one that meets a deadline.

#include <functional>
#include <limits>

#include "schedule/schedule.h"

namespace chimera {

/// Input of list_schedule(). Times are in ticks of any length.
struct ListTask {
  Placement placement = {};
  std::vector<ReplicaId> replica_of = {};  // [micro-batch]
  std::int64_t slices = 1;                 // Slices of a micro-batch (parts of its token sequence), k
  bool split_backward = false;  // Input gradients (I) and weight gradients (W) instead of whole backwards (B)
  std::int64_t op_ticks = 1;    // Duration of a forward (F), I or W of a slice; B takes twice as long
  std::vector<std::int64_t> worker_ticks = {};  // [worker]: replaces op_ticks. Empty: workers are equally fast
  std::int64_t latency_ticks = 0;               // Latency of a message to another worker
  /// [replica][stage]: maximum number of slices in flight (forward started, B or W not ended). Empty: no limit.
  std::vector<std::vector<std::int64_t>> stage_credits = {};
  /// [worker]: maximum number of slices in flight, counted once for each of its stages. As many as one micro-batch can
  /// need there are reserved for the oldest unfinished micro-batch. Empty: no limit.
  std::vector<std::int64_t> worker_credits = {};
};

/// Returns the rank of an op; among the ready ops of a worker, the op with the smallest rank runs first. `age` is the
/// number of slices that the replica runs before this one. With k slices per micro-batch, the forward of slice s of the
/// n-th micro-batch (from 0) has age n k + s; for B, I and W, which run slices in reverse, n k + k - 1 - s. Ties:
/// smaller age, then deeper stage, then smaller replica.
using ListRank = std::function<std::int64_t(const Op& op, std::int64_t age)>;

/// Result of list_schedule().
struct ListResult {
  Schedule schedule;
  std::int64_t makespan = 0;        // In ticks
  std::int64_t peak_in_flight = 0;  // Maximum over workers, counted as worker_credits
};

/// Simulates the task. A worker never waits while it has a ready op that its credits allow. A stage runs a replica's
/// ops of one kind in the order of their age, regardless of rank. Deterministic.
///
/// Limits cannot cause a deadlock, because the oldest unfinished micro-batch (smallest age, then smallest replica) can
/// always run. Younger micro-batches wait behind it at a stage, and worker credits are reserved for it.
///
/// Requires ops of at least 1 tick and a latency of at least 0. Throws InternalError if a limit has no room for
/// a single micro-batch.
[[nodiscard]] ListResult list_schedule(const ListTask& task, const ListRank& rank);

/// Limits of deepest_first(). The defaults are no limits.
struct DepthLimits {
  /// Maximum number of micro-batches of a replica in flight, from the forward at stage 0 to the input gradient there
  std::int64_t admitted = std::numeric_limits<std::int64_t>::max();
  /// Number of activations (replica, stage, micro-batch) on a worker at which its oldest W gets priority
  std::int64_t most_held = std::numeric_limits<std::int64_t>::max();
};

/// Schedules split backwards so that a worker prefers the micro-batch that is farthest along. A replica admits its
/// micro-batches in order, while fewer than `admitted` of them are in flight. A free worker runs the first of these
/// that exists:
/// 1. its oldest W, if it holds `most_held` activations (F started, W not ended);
/// 2. of the F and I with arrived input, the op farthest along the way through all stages and back (ties: lower
///    replica, then older micro-batch);
/// 3. its oldest W.
///
/// It cannot deadlock, because F and I never wait for memory. A worker never holds more than `most_held` activations if
/// `admitted` micro-batches of each replica need no more there. Requires a task without slices and credits.
[[nodiscard]] Schedule deepest_first(ListTask task, const DepthLimits& limits);

/// The limits that with_fewest_credits() tries.
struct CreditRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

/// Looks for the smallest limit on activations that is fast enough. Calls list_schedule() with worker_credits set to
/// the same number for each worker, for at most 17 evenly spaced numbers of the range, in ascending order. Returns the
/// first result that ends by `deadline` (in ticks), or else the best result by pick_better().
[[nodiscard]] ListResult with_fewest_credits(ListTask task, const ListRank& rank, const CreditRange& credits,
                                             std::int64_t deadline);

/// Returns the result that ends first; ties: fewer in flight, then `a`.
[[nodiscard]] ListResult pick_better(ListResult a, ListResult b);

}  // namespace chimera
