#pragma once
// Schedules for lost and slow workers. If a worker is lost, for example with its host, other workers that hold the same
// stages (*holders*) can run its ops: in the other replicas of a bidirectional schedule, or in the other data-parallel
// groups. They can also take a part of the ops of a slow worker. make_detours() returns such a schedule, in which
// micro-batches take paths around these workers (routes.h). It is a Schedule like any other: check(), lower(),
// simulate() and the pictures accept it.
//
// The schedule has the workers of all groups: with D workers per group, worker w of group g has number g D + w. Lost
// workers keep their numbers, but hold no stage (schedule/schedule.h). With N micro-batches per group, micro-batch m
// of group g has number g N + m. Samples are assigned to micro-batches as in the healthy schedule.

#include "generate/routes.h"
#include "schedule/schedule.h"

namespace chimera {

/// A worker that is lost or slow. Its number is g D + w.
struct SlowWorker {
  WorkerId worker;
  double speed = 0;  // 0: lost; 0.5: its ops take twice as long
};

/// Input of make_detours().
struct DetourTask {
  Schedule healthy;                   // Of one group; synchronous
  std::int64_t groups = 1;            // Data-parallel groups
  std::vector<SlowWorker> slow;       // The others have speed 1
  std::vector<StageTime> times = {};  // [stage], for the choice of paths; empty: equal times
  /// Stages that workers hold in addition to their own, to share the load of lost workers
  std::vector<ExtraCopy> extra_copies = {};
  /// Consecutive micro-batches that stay on one path: with --reduction canonical, a block of its sums; otherwise 1
  std::int64_t block_size = 1;
  /// Maximum activations of a worker. The unit is the activations of a micro-batch in the stages that a replica has on
  /// a worker (stage unit). Empty: as many as the fastest order needs
  std::optional<double> most_in_flight = std::nullopt;
  std::int64_t effort = 600'000;  // Ops to order, over all attempts, before the best order so far is taken
};

/// Result of make_detours(). Times assume that at every stage a forward, an input gradient and a weight gradient take
/// 1 on a healthy worker, a whole backward takes 2, and messages take no time. The time of an op on a slow worker is
/// rounded to 1/12.
struct Detours {
  Schedule schedule;
  double makespan = 0;
  /// Lower bound of the makespan, by the busiest survivor: the time of all its ops, and before them the forwards of
  /// earlier stages that its first op must wait for. No order of these ops is faster.
  double bound = 0;           // Routes::bound
  double peak_in_flight = 0;  // Of the worker with most, in stage units
};

/// Returns a schedule without the lost workers, and with less work for slow ones. Chooses paths (find_routes()), and
/// orders the ops by list scheduling in the order of the healthy schedule. Tries limits on activations in ascending
/// order, until an order reaches the bound, and then other paths of equal merit, until an order is within 5 % of the
/// bound or `effort` is spent. Returns the fastest order. Keeps split backwards and slices, but drops pairs (a forward
/// and a backward that overlap). A stage of a path runs its micro-batches in ascending order. Deterministic.
///
/// If no worker is lost or slow and there are no extra copies, returns in_all_groups().
///
/// Throws ConfigError as worker_speeds() and in_all_groups() do, if the schedule is asynchronous, if a stage has no
/// holder left, if the micro-batches of a path do not make whole blocks, or if the limit has no room for one
/// micro-batch.
[[nodiscard]] Detours make_detours(const DetourTask& task);

/// Returns [worker]: its speed, for the workers of all groups. Throws ConfigError if a worker or a stage of the task
/// does not exist, or if a lost worker has an extra copy.
[[nodiscard]] std::vector<double> worker_speeds(const DetourTask& task);

/// Returns the schedule of one group as one schedule for all groups, with the numbers of make_detours(). Throws
/// ConfigError if `groups` is below 1, or for more than 32,767 replicas or kMaxOps ops.
[[nodiscard]] Schedule in_all_groups(const Schedule& group, std::int64_t groups);

}  // namespace chimera
