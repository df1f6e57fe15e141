#pragma once
// Greedy list scheduling, for orders without a formula. list_schedule() simulates a step: a worker that becomes free
// starts the ready op with the smallest rank that its limits on activations (*credits*) allow. A generator gives the
// placement, the replica of each micro-batch, and the rank function. Schedules with slices, Hanayo and chimera-zb use
// it. deepest_first() is a variant with a fixed rank and limits of its own: every worker runs the micro-batch that is
// farthest along. An op that arrives late then delays only the ops that need it, so the order suits high latency and
// unequal op times. with_fewest_credits() tries several limits and keeps the lowest one that meets a deadline.

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// Input of list_schedule(). Times are in ticks of any length.
struct ListTask {
  Placement placement = {};
  std::vector<ReplicaId> replica_of = {};  // [micro-batch]
  std::int64_t slices = 1;                 // k: slices of a micro-batch
  bool split_backward = false;             // I and W instead of B
  std::int64_t op_ticks = 1;               // Duration of F, I and W of a slice; B takes twice as long
  std::int64_t latency_ticks = 0;          // Latency of a message to another worker
  /// [replica][stage]: maximum number of slices in flight (forward started, B or W not ended). Empty: no limit.
  std::vector<std::vector<std::int64_t>> stage_credits = {};
  /// [worker]: maximum number of (replica, stage, slice) in flight. The credits that one micro-batch can need there are
  /// reserved for the oldest unfinished one. Empty: no limit.
  std::vector<std::int64_t> worker_credits = {};
};

/// Returns the rank of an op; among the ready ops of a worker the smallest rank runs first. `age` counts the slices of
/// a replica in the order in which they enter it: for F, slice s of its n-th micro-batch (from 0) has age n k + s; for
/// B, I and W, which run slices in reverse, n k + k - 1 - s. Ties: smaller age, then deeper stage, then smaller
/// replica.
using ListRank = std::function<std::int64_t(const Op& op, std::int64_t age)>;

struct ListResult {
  Schedule schedule;
  std::int64_t makespan = 0;        // In ticks
  std::int64_t peak_in_flight = 0;  // Most (replica, stage, slice) in flight on a worker
};

/// Simulates the task. A worker never waits while it has a ready op that its credits allow. A stage runs a replica's
/// forwards in ascending order, regardless of rank, and the slices of a micro-batch in order. Deterministic; takes
/// O(log(ops in flight)) per op.
///
/// Limits cannot cause a deadlock, because the oldest unfinished micro-batch (smallest age, then smallest replica) can
/// always run. Younger micro-batches wait behind it at a stage, and worker credits are reserved for it.
///
/// Requires ops of at least 1 tick and a latency of at least 0. Throws InternalError, naming worker and credit, if a
/// limit has no room for a single micro-batch.
[[nodiscard]] ListResult list_schedule(const ListTask& task, const ListRank& rank);

/// Limits of deepest_first(). The defaults are no limits.
struct DepthLimits {
  /// A: maximum number of micro-batches of a replica in flight, from the forward at stage 0 to the input gradient there
  std::int64_t admitted = std::numeric_limits<std::int64_t>::max();
  /// Number of activations (replica, stage, micro-batch) on a worker at which its oldest W gets priority
  std::int64_t most_held = std::numeric_limits<std::int64_t>::max();
};

/// Schedules split backwards so that a worker prefers the micro-batch that is farthest along. A replica admits its
/// micro-batches in order, while fewer than A of them are in flight. A free worker runs the first of these that exists:
/// 1. its oldest W, if it holds `most_held` activations (F started, W not ended);
/// 2. of the F and I with arrived input, the op farthest along the way through all stages and back (ties: lower
///    replica, then older micro-batch);
/// 3. its oldest W.
///
/// It cannot deadlock, because F and I never wait for memory. If A micro-batches of each replica need at most
/// `most_held` activations on a worker, it never holds more. Requires a task without slices and credits.
[[nodiscard]] Schedule deepest_first(ListTask task, const DepthLimits& limits);

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
