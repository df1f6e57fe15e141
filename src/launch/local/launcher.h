#pragma once

// Runs a job of several processes (ranks) on one host, from the first start to the last exit. An attempt is one start
// of all ranks: it creates the pipes and shared memory of the ranks (RankChannels), starts them, and supervises them
// (supervisor.h). After a failure, either the lost rank is replaced (recovery.h), or the whole job restarts from its
// newest checkpoint (restarts.h). The decision to restart is in run_with_restarts() of the source.
//
//   launch() -> attempt 1: supervise() -> failed in step 30 -> Restarts allows it -> attempt 2 ...
//
// `chimera train` and other commands with ranks fill a LaunchPlan (supervisor.h): the command of the ranks, and what to
// do when ranks hang, fail or receive signals.

#include "launch/local/supervisor.h"

namespace chimera {

/// Runs the job and returns its exit code: 0; 1 if a rank failed, 2 if it failed with ExitCode::Usage; 128 + n after
/// signal n (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2). If plan.saves, the first signal except SIGINT makes the job
/// save a checkpoint and return kSavedExit; if not all ranks are in their steps yet, it returns without saving. Another
/// signal, kSameSignal or more later, ends the job.
///
/// After a failure, names the first rank that failed for its own reason on stderr: "chimera: rank 2 failed at 1B3:
/// ...". After a rank that only lost a peer, waits kVictimGrace for the culprit. If the job hangs, names the stuck rank
/// and its activity. Ends the other ranks by SIGTERM, and by SIGKILL 0.5 s later; if plan.saves, by SIGKILL at once.
/// Then restarts the job if the plan allows it and the exit code would be 1. If recoveries are allowed, ranks that fail
/// or hang in a step are replaced, and the others continue. Finally waits up to kDrainAfterFailure for the reader of
/// stderr. Leaves no process (see rank_environment()) or file, even if the launcher is killed by SIGKILL.
///
/// The times: kSameSignal 500 ms and the exit code kSavedExit 75 (process.h), kVictimGrace 300 ms (failure_report.h),
/// kDrainAfterFailure 300 ms (core/console.h).
///
/// Call it from the main thread, while no other thread receives signals. Throws ConfigError if plan.ranks is out of
/// range, Error if the system refuses a process or descriptor; started ranks are killed.
[[nodiscard]] int launch(const LaunchPlan& plan);

}  // namespace chimera
