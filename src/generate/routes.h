#pragma once
// Chooses the workers that run the ops of lost and slow workers, for detours.h. A lost worker is one of speed 0. A
// *path* is the workers of one replica of the model: one worker for each stage, a row of Placement::worker_of.
// *Holders* of a stage are the workers of any path that have its weights. A path through a lost worker becomes one or
// more paths around it, the detours, and each takes some consecutive micro-batches. A slow worker keeps a part of its
// micro-batches. For example, the schedule `chimera` in two groups, workers 0 .. 3 and 4 .. 7, loses worker 1. Workers
// 2, 5 and 6 also hold its stage 1:
//
//   healthy path   workers 0 1 2 3   micro-batches 0 1 2 3
//   detours        workers 0 2 2 3   micro-batches 0 1
//                  workers 0 5 2 3   micro-batch 2
//                  workers 0 6 2 3   micro-batch 3

#include "schedule/schedule.h"

namespace chimera {

/// A copy of a stage on a worker that does not hold the stage in the healthy schedule.
struct ExtraCopy {
  StageId stage;
  WorkerId worker;
  friend bool operator==(const ExtraCopy&, const ExtraCopy&) = default;
};

/// Time of a micro-batch's ops at a stage on a worker of speed 1.
struct StageTime {
  double ops = 0;     // Of all its ops
  double before = 0;  // Of the ops at earlier stages that its first op waits for
};

/// Input of find_routes().
struct RouteTask {
  const Schedule& healthy;            // Of all groups (in_all_groups()); borrowed
  std::vector<double> speeds;         // [worker]: 1 if healthy, 0.5 if its ops take twice as long, 0 if it is lost
  std::vector<StageTime> times = {};  // [stage]. Empty: F, I and W of a slice take 1, and B takes 2
  std::vector<ExtraCopy> extra_copies = {};
  std::int64_t block_size = 1;  // Consecutive micro-batches of a path that stay together
  std::uint64_t variant = 0;    // Other numbers choose other holders of equal merit
};

/// Result of find_routes().
struct Routes {
  /// Paths, each a replica. They divide the micro-batches of the healthy replicas in order, so that all micro-batches,
  /// sorted by replica and then by id, have the same order as in the healthy schedule.
  Placement placement;
  std::vector<ReplicaId> replica_of;  // [micro-batch]
  /// [micro-batch]: a micro-batch of the same healthy path whose place it takes in the order of ops, so that the
  /// detours of a path take turns.
  std::vector<MicroBatchId> place_of;
  double bound = 0;          // Lower bound of the makespan, by the busiest survivor (Detours::bound)
  std::int64_t busiest = 0;  // Number of workers that reach the bound
};

/// Assigns the micro-batches (in blocks) of lost workers, and a part of those of slow workers, stage by stage, to other
/// holders, so that Routes::bound is as small as possible. A holder in the same group wins ties, then the smaller
/// number. With extra copies, blocks of other workers may move, too, if this reduces the bound. Each holder of a stage
/// gets some of its blocks if there are enough.
///
/// Throws ConfigError if a stage has no holder, or if the micro-batches of a path do not make whole blocks.
[[nodiscard]] Routes find_routes(const RouteTask& task);

}  // namespace chimera
