#pragma once
// Chooses the holders that run the micro-batches of lost workers (generate/detours.h). A *path* is an entry of
// `replicas`: one worker for each stage. A path through a lost worker becomes one or more paths around it, the detours,
// and each takes some consecutive micro-batches. D = 4, f = 1, two groups of 4 workers, and worker 1 lost:
//
//   healthy path   workers 0 1 2 3   micro-batches 0 1 2 3
//   detours        workers 0 2 2 3   micro-batches 0 1
//                  workers 0 5 2 3   micro-batch 2
//                  workers 0 6 2 3   micro-batch 3

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// A copy of a stage on a worker that does not hold the stage in the healthy schedule.
struct ExtraCopy {
  StageId stage;
  WorkerId worker;
  friend bool operator==(const ExtraCopy&, const ExtraCopy&) = default;
};

/// Input of find_routes().
struct RouteTask {
  const Schedule& healthy;  // Of all groups (in_all_groups())
  std::vector<bool> lost;   // [worker]
  std::vector<ExtraCopy> extra_copies = {};
  std::int64_t block_size = 1;  // Consecutive micro-batches of a path that stay together
  std::uint64_t variant = 0;    // Other numbers choose other holders of equal merit
};

struct Routes {
  /// Its replicas, by id, have consecutive micro-batches of the healthy schedule's replicas, in the same order. So the
  /// micro-batches have the same order by replica and id as in the healthy schedule.
  Placement placement;
  std::vector<ReplicaId> replica_of;  // [micro-batch]
  /// [micro-batch]: another micro-batch of the same healthy path. The op order treats the first as if it were the
  /// second, so that the detours of a path take turns.
  std::vector<MicroBatchId> place_of;
  std::int64_t bound = 0;    // Largest, over survivors, of load + earliest start (Detours::bound)
  std::int64_t busiest = 0;  // Workers that reach the bound
};

/// Assigns the blocks of micro-batches at the stages of lost workers to other holders, so that the largest sum of load
/// and earliest start of a worker is as small as possible. A holder in the same group wins ties, then the smaller
/// number. With extra copies, blocks of other workers may move, too, as long as this reduces the largest sum.
///
/// Throws ConfigError if a stage has no holder, or if a path has no whole number of blocks.
[[nodiscard]] Routes find_routes(const RouteTask& task);

}  // namespace chimera
