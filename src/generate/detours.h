#pragma once
// Schedules without some workers. If a worker is lost, other workers that hold its stages can run its ops, because
// every stage has 2f holders in each of W groups. make_detours() returns such a schedule for the survivors. It is a
// Schedule like any other: check(), lower(), simulate() and the pictures accept it.
//
// The schedule has the D W workers of all groups; worker w of group g has number g D + w. Lost workers keep their
// numbers, but hold no stage (schedule/survivors.h). Micro-batch m of group g has number g N + m. Samples are assigned
// to micro-batches as in the healthy schedule, and a canonical block is on one path (routes.h).

#include <cstdint>
#include <optional>
#include <vector>

#include "generate/routes.h"
#include "schedule/schedule.h"

namespace chimera {

/// Input of make_detours().
struct DetourTask {
  Schedule healthy;            // Of one group; synchronous
  std::int64_t groups = 1;     // W
  std::vector<WorkerId> lost;  // Numbers g D + w
  std::vector<ExtraCopy> extra_copies = {};
  std::int64_t block_size = 1;  // Consecutive micro-batches of a block of canonical sums; 1 without them
  /// Maximum activations of a worker in stage units (a share is the stages that a replica places on a worker); empty:
  /// as many as the fastest order needs
  std::optional<double> most_in_flight = std::nullopt;
  std::int64_t effort = 600'000;  // Ops to order, over all attempts, before the best order so far is taken
};

/// Result of make_detours(). Times are for F = I = W = 1 and B = 2 at every stage, without latency.
struct Detours {
  Schedule schedule;
  double makespan = 0;
  /// Largest, over survivors, of load (time of the worker's ops) + earliest start (the least number of forwards before
  /// one of its stages). No order of these ops is faster.
  double bound = 0;
  double peak_in_flight = 0;  // Of the worker with most, in stage units
};

/// Returns a schedule without the lost workers. Chooses paths (find_routes()), and orders the ops by list scheduling in
/// the order of the healthy schedule. Tries several limits of activations: the smallest limit whose order reaches the
/// bound is taken, else the fastest order. Keeps split backwards and slices, and drops pairs. A stage of a path runs
/// its micro-batches in ascending order. Deterministic.
///
/// If no worker is lost and there are no extra copies, returns in_all_groups().
///
/// Throws ConfigError if the schedule is asynchronous, if a lost worker does not exist, if a stage has no holder left,
/// if a path has no whole number of blocks, or if the limit has no room for one micro-batch.
[[nodiscard]] Detours make_detours(const DetourTask& task);

/// Returns the schedule of one group for W groups, with the numbers of make_detours().
[[nodiscard]] Schedule in_all_groups(const Schedule& group, std::int64_t groups);

}  // namespace chimera
