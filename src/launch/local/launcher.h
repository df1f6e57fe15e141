#pragma once

// Runs a job of several processes (ranks) on one host, from the first start to the last exit. An attempt is one start
// of all ranks: it creates the pipes and shared memory of the ranks (RankChannels), starts them, and supervises them
// (supervisor.h). After a failure, either the lost rank is replaced (recovery.h), or the whole job restarts from its
// newest checkpoint (restarts.h). The decision to restart is in run_with_restarts() of the source.
//
//   launch() -> attempt 1: supervise() -> failed in step 30 -> Restarts allows it -> attempt 2 ...
//
// `chimera train` and other commands with ranks fill a LaunchPlan: the command of the ranks, and what to do when ranks
// hang, fail or receive signals.

#include <filesystem>
#include <functional>

#include "launch/flight/flight_record.h"
#include "launch/local/process.h"

namespace chimera {

/// Returns the path of the running executable.
[[nodiscard]] std::string own_executable();

/// How a restarted job continues.
struct NextStart {
  std::vector<std::string> arguments;  ///< Added to LaunchPlan::arguments
  std::string description;             ///< Part of a message, such as "goes on from step 30"
};

/// A job of ranks on this host, or of relays of ranks on other hosts (launch/hosts/remote_rank.h).
struct LaunchPlan {
  int ranks = 1;                              ///< 1 .. kMaxRanksOfHost; more on several hosts without recoveries
  std::vector<std::string> arguments;         ///< argv[1..]
  std::string input = "";                     ///< Text that each rank can read as a file, RankEnvironment::input_path
  std::string executable = own_executable();  ///< Program of the ranks; must call rank_environment() first in main()
  /// Function that ranks run as their main() in a fork of this process, if safe_to_fork() (process.h). Null: ranks
  /// start by exec of `executable`, as GPUs require.
  ProgramEntry entry = nullptr;
  /// A job hangs if no rank makes progress for this time beyond the longest pause so far; 0: no hang detection.
  std::chrono::milliseconds hang{0};
  /// The same limit until all ranks have completed a step; 0: four times `hang` (HangWatch::kStartUpFactor).
  std::chrono::milliseconds hang_at_start{0};
  /// The same limit after a recovery, until all ranks have completed a step again; 0: four times `hang`.
  std::chrono::milliseconds hang_after_loss{0};
  /// Whether waiting ranks use no CPU time, so that a rank that uses CPU time is not taken for hung. False if ranks
  /// wait for a GPU.
  bool waits_idle = true;
  /// Whether steps after the second run without notes of progress, because a CUDA graph repeats them.
  bool records_steps = false;
  /// Whether ranks that train react to SIGUSR1: they save a checkpoint and end with kSavedExit.
  bool saves = false;
  /// Maximum number of restarts of the job (restarts.h). Before each, the launcher calls `next_start` with the failed
  /// step, from 1; 0: the job did not fail in a step.
  int most_restarts = 0;
  std::function<NextStart(std::int64_t failed_step)> next_start = {};
  /// Called before each attempt, if set: completes the plan of the attempt for its hosts. Returns false after a signal,
  /// or, with a message, if no attempt is possible.
  std::function<bool(LaunchPlan& attempt, const SignalInbox& signals)> place = {};
  std::vector<std::string> hosts = {};  ///< [rank]: host of the rank if its process here is a relay; else empty
  /// Maximum number of recoveries (recovery.h): a lost rank is replaced, and the other ranks keep running. `copies`
  /// has, for each parameter group (the parameters of a stage), the ranks that hold it; a lost rank can only be
  /// replaced if each of its groups has another rank. Ranks read from RankEnvironment::orders, a pipe, when to connect
  /// again. If a recovery is impossible, the job restarts.
  int most_recoveries = 0;
  RankGroups copies = {};
  /// Number of consecutive elements of `copies` that belong to one parameter group. Above 1 if several ranks share each
  /// layer (tensor parallelism): there is then an element for each part of the group
  std::int64_t copies_of_group = 1;
  RankGroups shards = {};  ///< The ranks of each shard of the optimizer, if two ranks hold each
  std::vector<std::string> replacement_arguments = {};  ///< Added to the arguments of replacement ranks
  /// Time after which a recovery continues without a replacement that is not ready: the other ranks run its stages, and
  /// it joins them later. 0: no replacement is started. Empty: a recovery waits for its replacements.
  std::optional<std::chrono::milliseconds> spare_patience = {};
  /// Last step of the job (from 1), shortly before which a late replacement is not worth a pause and does not join any
  /// more. 0: unknown
  std::int64_t last_step = 0;
  /// Folder of flight records, created for each attempt and removed after success. Empty: no records.
  std::string flight_folder = "";
  FlightJob flight_job = {};
  std::filesystem::path root = "/";  ///< Argument of out_of_memory_kills() (core/cgroup.h); tests change it
};

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
