#pragma once
// The order of a pipeline with split backward, in which a worker always carries on what has come farthest.

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// What is to be run, where, and how much at once. Times are in ticks of any length.
struct DeepestFirstTask {
  std::string name;  // of the schedule
  Placement placement = {};
  std::vector<ReplicaId> replica_of = {};  // [micro-batch]
  std::int64_t admitted = 1;               // A: most micro-batches of a replica on their way
  std::int64_t most_held = 1;              // (replica, stage, micro-batch) on a worker from which on W goes first
  std::int64_t op_ticks = 100;             // F, I and W of a stage
  std::int64_t latency_ticks = 0;          // of a message to another worker
};

/// Each replica admits a micro-batch, in order, while fewer than A of its own are between admission and the end of I at
/// stage 0. A free worker runs its oldest W if it holds `most_held` activations (F begun, W not ended) and has one;
/// else, of the F and I whose inputs have arrived, the one farthest along its way through all stages and back (of
/// equals that of the lower replica, then the older micro-batch); else its oldest W; else it waits.
///
/// It cannot deadlock, as no F and no I waits for room. Where A micro-batches of each replica need at most `most_held`
/// activations on a worker, it never holds more: whatever it holds of micro-batches that are not on their way any more
/// has a W, and with `most_held` of them that W goes before the next F.
/// Deterministic; O(log(ops in flight)) an op. Requires times of at least 0, ops of at least 1 tick, and A, `most_held`
/// of at least 1.
[[nodiscard]] Schedule deepest_first(const DeepestFirstTask& task);

}  // namespace chimera
