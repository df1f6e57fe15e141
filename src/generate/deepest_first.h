#pragma once
// A simulated order: every worker always runs the op of the micro-batch that is farthest along. Ops that arrive late
// delay only what needs them, so the order suits latency and unequal op times (chimera-zb with --order deepest, and
// hanayo-zb). list_schedule.h has the general form, with ranks and limits on activations.

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// What deepest_first() schedules. Times are in ticks of any length.
struct DeepestFirstTask {
  std::string name;  // Name of the schedule
  Placement placement = {};
  std::vector<ReplicaId> replica_of = {};  // [micro-batch]
  std::int64_t admitted = 1;               // A: maximum number of micro-batches of a replica in flight
  std::int64_t most_held = 1;      // Activations (replica, stage, micro-batch) on a worker at which W has priority
  std::int64_t op_ticks = 100;     // Duration of F, I and W
  std::int64_t latency_ticks = 0;  // Latency of a message to another worker
};

/// Schedules so that a worker prefers the micro-batch that is farthest along. A replica admits its
/// micro-batches in order, while fewer than A of them are between admission and the end of I at stage 0. A free worker
/// runs the first of these that exists:
/// 1. its oldest W, if it holds `most_held` activations (F started, W not ended);
/// 2. of the F and I with arrived input, the op farthest along the way through all stages and back (ties: lower
///    replica, then older micro-batch);
/// 3. its oldest W.
///
/// It cannot deadlock, because F and I never wait for memory. If A micro-batches of each replica need at most
/// `most_held` activations on a worker, it never holds more. Deterministic; takes O(log(ops in flight)) per op.
///
/// Requires times of at least 0, ops of at least 1 tick, and A and `most_held` of at least 1.
[[nodiscard]] Schedule deepest_first(const DeepestFirstTask& task);

}  // namespace chimera
