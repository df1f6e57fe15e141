#pragma once
// Greedy list scheduling, for orders without a formula: the step is simulated, and a worker that becomes free starts
// the ready op of the best rank that its limits on activations (*credits*) allow. Schedules with slices and Hanayo use
// it, and the search as its first order. A generator gives the placement, the deal of micro-batches, and a rank. The
// scheduler in the source is one class: each event changes an op's stage, its worker and its micro-batch together.

#include <functional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// Durations of a stage's ops, in any unit.
struct OpDurations {
  double forward = 1;
  double backward = 2;  // Whole B
  double input_gradient = 1;
  double weight_gradient = 1;
};

struct ListTask {
  std::string name;  // Name of the schedule
  Placement placement = {};
  std::vector<ReplicaId> replica_of = {};     // [micro-batch]
  std::int64_t slices = 1;                    // k: slices of a micro-batch
  bool split_backward = false;                // I and W instead of B
  std::vector<OpDurations> durations = {{}};  // [stage], or one entry for all; of a slice
  double latency = 0;                         // Latency of a message to another worker
  /// [replica][stage]: maximum number of slices in flight (forward started, B or W not ended). Empty: no limit.
  std::vector<std::vector<std::int64_t>> stage_credits = {};
  /// [worker]: maximum number of (replica, stage, slice) in flight. The credits that one micro-batch can need there are
  /// reserved for the oldest unfinished one. Empty: no limit.
  std::vector<std::int64_t> worker_credits = {};
};

/// Rank of an op; the smallest runs first. `age` is the slice's position in its replica: slices of a micro-batch
/// ascend in F and descend in B, I and W. Ties: smaller age, then deeper stage, then smaller replica.
using ListRank = std::function<std::int64_t(const Op& op, std::int64_t age)>;

struct ListResult {
  Schedule schedule;
  double makespan = 0;
  std::int64_t peak_in_flight = 0;  // Most (replica, stage, slice) in flight on a worker
};

/// Simulates the task. A worker never waits while it has a ready op that its credits allow. A stage runs a replica's
/// forwards in ascending order, regardless of rank, and the slices of a micro-batch in order. Deterministic; takes
/// O(log(ops in flight)) per op.
///
/// Credits cannot deadlock, because the oldest unfinished micro-batch (smallest age, then smallest replica) always gets
/// them. Younger ones wait behind it at a stage, and worker credits are reserved for it.
///
/// Throws ConfigError, naming worker and credit, if a limit has no room for a single micro-batch; also if durations or
/// latency are negative or not finite, or the number of durations is wrong.
[[nodiscard]] ListResult list_schedule(const ListTask& task, const ListRank& rank);

struct CreditRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

/// Returns list_schedule() with as many credits for each worker, the fewest of at most 17 in the range that end by
/// `deadline`; if none does, the result that is best by better().
[[nodiscard]] ListResult with_fewest_credits(ListTask task, const ListRank& rank, const CreditRange& credits,
                                             double deadline);

/// Returns the result that ends first; ties: fewer in flight, then `a`.
[[nodiscard]] ListResult better(ListResult a, ListResult b);

}  // namespace chimera
