#pragma once
// Greedy list scheduling: whenever a worker is free, it starts the ready op that a rule ranks first.

#include <functional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// Durations of one stage's ops, in any unit of time.
struct OpDurations {
  double forward = 1;
  double backward = 2;  // a whole B
  double input_gradient = 1;
  double weight_gradient = 1;
};

/// What is to be run, where, how long it takes, and how much a worker may hold.
struct ListTask {
  std::string name;  // of the schedule
  Placement placement = {};
  std::vector<ReplicaId> replica_of = {};     // [micro-batch]
  bool split_backward = false;                // I and W in place of B
  std::vector<OpDurations> durations = {{}};  // [stage], or one for all
  double latency = 0;                         // of a message to another worker: pure delay
  /// [replica][stage]: most micro-batches in flight there (forward begun, B or W not ended). Empty: no such limit.
  std::vector<std::vector<std::int64_t>> stage_credits = {};
  /// [worker]: most (replica, stage, micro-batch) in flight there. As many as one micro-batch can need on the worker
  /// are kept for the oldest micro-batch that has not ended there. Empty: no such limit.
  std::vector<std::int64_t> worker_credits = {};
};

/// A number for each op; of the ready ops the one with the smallest number runs first. `age` is the micro-batch's
/// position among those of its replica. On equal numbers the smaller age runs first, then the deeper stage, then the
/// smaller replica.
using ListRank = std::function<std::int64_t(const Op& op, std::int64_t age)>;

struct ListResult {
  Schedule schedule;
  double makespan = 0;              // in the unit of the durations
  std::int64_t peak_in_flight = 0;  // most (replica, stage, micro-batch) in flight on a worker
};

/// Runs everything on a clock. A worker never waits while it has a ready op that its credits allow. A stage runs the
/// forwards of a replica's micro-batches in ascending order, whatever the rank. Deterministic; O(log(ops in flight)) an
/// op.
///
/// Credits cannot deadlock. Take the oldest micro-batch that has not ended (smallest age, then smallest replica). Those
/// before it in its replica have ended and those after it wait behind it, so no other holds a stage credit that it
/// needs; on every worker where it has not ended it is the oldest there, so a worker credit is kept for it. Its next op
/// is thus always allowed, and as every other op ends, it runs.
///
/// Throws ConfigError, saying which worker waits for which credit, where a limit leaves no room for a single
/// micro-batch; and where durations or latency are negative or not finite, or do not fit the stages.
[[nodiscard]] ListResult list_schedule(const ListTask& task, const ListRank& rank);

/// The one that ends first; of equals the one with fewer in flight; of equals `a`.
[[nodiscard]] ListResult better(ListResult a, ListResult b);

}  // namespace chimera
