#pragma once

// Preparation of a job: from options to a Job (job.h) whose options fit together, whose schedule and programs are
// proven free of deadlocks, and whose data, checkpoints and outputs can be used. Runs no tensor op. Everything that can
// be wrong with the flags of `chimera train` ends here with a ConfigError.

#include "plan/stage_model.h"
#include "train/setup/job.h"

namespace chimera {

/// Checks the options, and reads the headers of the model's file or folder. Throws ConfigError for invalid options.
[[nodiscard]] Job resolve_model(const TrainOptions& options);

/// Generates and checks the schedule of a job of resolve_model(), and checks the rest of its options. The schedule must
/// have a name; choose_schedule() finds one. Throws ConfigError for invalid options.
[[nodiscard]] Job resolve_shape(Job job);
[[nodiscard]] inline Job resolve_job(const TrainOptions& options) { return resolve_shape(resolve_model(options)); }

/// Returns resolve_job() of the options. If they have no schedule, takes one that accepts the given flags: predicts a
/// step with each synchronous schedule, as `--dry-run` does, and takes the one that the planner ranks first
/// (plan/plan.h), the fastest that fits in memory, where a tie goes to the least memory. A resumed run keeps the
/// schedule of its checkpoint. On one host of CPUs, the prediction uses its cores and memory. If another launcher has
/// started the ranks, each process chooses; the prediction then uses options and sizes alone, so that all choose alike.
/// If no schedule accepts the flags, or the profile does not cover the model, takes kDefaultSchedule, and throws its
/// errors.
[[nodiscard]] Job choose_schedule(const TrainOptions& options);

/// Divides the model into stages, and chooses the stages that recompute or offload. The result is sufficient for a dry
/// run.
[[nodiscard]] Job partition_job(Job job);

/// Returns the bytes of each stage on a rank: weights, gradients, optimizer state, activations.
[[nodiscard]] StageModel bytes_of_stages(const JobShape& job, const TrainOptions& options);

/// Throws ConfigError if the ranks of this machine need more memory than the machine or --memory has, or if there are
/// too many for its cores. Does nothing with --no-memory-check.
void require_memory(const Job& job);

/// Sets the job's programs: the instructions of all workers (passes/lower.h). Throws ScheduleError if one could
/// deadlock.
void lower_programs(Job& job);

/// Partitions the model, lowers the schedule, verifies that programs cannot deadlock, opens data and checkpoints, and
/// checks outputs. Runs no tensor op. Throws ConfigError if anything does not fit.
[[nodiscard]] Job prepare_job(Job shape);
[[nodiscard]] inline Job prepare_job(const TrainOptions& options) { return prepare_job(resolve_job(options)); }

/// Returns the number of file descriptors that the process with most of them needs: a rank, the process of all thread
/// ranks, or the launcher.
[[nodiscard]] std::int64_t descriptors_needed(const JobShape& job, const TrainOptions& options);

}  // namespace chimera
