#pragma once

// The job of the ranks that remain after a loss, if no replacement comes (--recover reroute), or with slow ranks
// (--adapt all). In it, the other ranks that hold such a rank's stages do its work or a part of it. It is an ordinary
// job with another schedule and, after a loss, fewer ranks: trainer and executor need no special case. A RunChange
// (engine/rerouted_run.h) says what has changed since the launch.

#include <chrono>
#include <string>

#include "engine/rerouted_run.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns the number of micro-batches of a block of --reduction canonical; otherwise 1.
[[nodiscard]] inline std::int64_t block_size_of(const JobShape& job) {
  return job.canonical ? job.canonical->block_size : 1;
}

/// Returns the job without the lost ranks. Model, data, checkpoints and options stay. New are the run (ranks and
/// schedule), the programs of the workers, and the order of additions for --reduction canonical. Throws ConfigError if
/// the schedule cannot be rerouted, for example because no other rank holds a stage.
[[nodiscard]] Job rerouted_job(const Job& launched, const RunChange& change);

/// Returns whether the workers' activations fit into --memory or their GPUs.
[[nodiscard]] bool fits_memory(const JobShape& job, const TrainOptions& options);

/// Writes the schedule of the change to the file kOrderName (job.h) in `folder`, or removes the file if the change has
/// no schedule. Throws ConfigError if it cannot be written.
void save_order(const std::string& folder, const RunChange& change);
/// Completes a job of prepare_job(). If it resumes a checkpoint that has the file kOrderName beside it, sets Job::order
/// and returns the job with this schedule, made as by rerouted_job(); if a TrainerHandover will take the schedule, only
/// sets Job::order. Prints a line and ignores the schedule if it is for another layout. Throws ConfigError if the file
/// has no valid schedule.
[[nodiscard]] Job in_chosen_order(Job job);

/// Returns the extra copies in a rerouted job: ranks (launched numbers) and parameter groups.
[[nodiscard]] std::vector<GroupHolder> extra_copies(const JobShape& job);

/// Returns `change` with at most one extra copy for each lost copy: drops others, for example after a lost rank has
/// returned, and adds those that balance the work (balancing_copies()). With --memory, a rank has room for what its
/// peak at the launch leaves; otherwise copies take the memory that lost ranks have left. A job with
/// --shard-optimizer gets no copies, and neither do the first and the last stage of a tied model.
[[nodiscard]] RunChange balanced(const Job& launched, const RunChange& change);

/// Returns how long a recovery of the job waits for a replacement (LaunchPlan::spare_patience), before the
/// other ranks continue without it: 0 with --recover reroute; nothing (it waits without a limit) if the loss of some
/// rank cannot be rerouted; otherwise --spare-seconds. Throws ConfigError with --recover reroute if the loss of some
/// rank cannot be rerouted.
[[nodiscard]] std::optional<std::chrono::milliseconds> spare_patience(const Job& job);

}  // namespace chimera
