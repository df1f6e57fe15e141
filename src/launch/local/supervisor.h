#pragma once

// Supervises the ranks of a job attempt from their start to their end. Each poll reads all exits, failure reports,
// signals and signs of a hang, and then takes one decision: replace lost ranks, end the job, or go on. The order of
// these decisions is in decide() of the source. The launcher (launcher.h) calls supervise() for each attempt, and
// decides from its outcome whether the job restarts.
//
//   exits, reports, signals, hang watch -> decide() -> RankProcesses::handle_loss() or end_job() -> StartOutcome

#include <filesystem>
#include <functional>

#include "core/file_descriptor.h"
#include "launch/flight/progress.h"
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

/// Files and shared memory that the launcher passes to its ranks.
struct RankChannels {
  FileDescriptor store;  ///< Memory file with the key-value store for rendezvous
  FileDescriptor input;  ///< Memory file that all ranks read (LaunchPlan::input); may be empty
  PipeEnds reports;      ///< Pipe for failure reports; the launcher reads it without blocking
  ProgressPage progress;
};

/// How an attempt ended.
struct StartOutcome {
  /// The job's exit code if it does not restart. With a failed rank: ExitCode::Usage for an error of usage, else
  /// ExitCode::No. After a signal other than SIGINT: kSavedExit if a job that saves checkpoints has none to save yet.
  /// After other signals: 128 + the number. Otherwise kSavedExit if a rank has saved and ended early, else 0.
  int exit_code = 0;
  /// Step (from 1) of the failed rank, 0 if outside of steps; empty if no rank failed
  std::optional<std::int64_t> failed_step = {};
  bool asked_to_save = false;                 ///< Whether a signal had asked the job to save and end
  std::optional<FlightVerdict> verdict = {};  ///< Why the attempt ended abnormally; empty after a normal end
};

/// Starts the process of a rank, which joins this generation of connections (recovery.h). `orders` is the rank's end of
/// an OrderChannel, or -1 if the job does not recover lost ranks.
using RankStarter = std::function<ChildProcess(int rank, std::int64_t generation, int orders)>;

/// Starts the ranks and supervises them until all have ended. Writes the cause of an abnormal end to messages(). If it
/// throws, running ranks are killed.
[[nodiscard]] StartOutcome supervise(RankChannels& channels, SignalInbox& signals, const LaunchPlan& plan,
                                     const RankStarter& start);

}  // namespace chimera
