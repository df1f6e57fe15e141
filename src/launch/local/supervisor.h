#pragma once

// Supervises the ranks of a job attempt from their start to their end. Each poll reads all exits, failure reports,
// signals and signs of a hang, and then takes one decision: replace lost ranks, end the job, or go on. The order of
// these decisions is in decide() of the source. The launcher (launcher.h) calls supervise() for each attempt, and
// decides from its outcome whether the job restarts.
//
//   exits, reports, signals, hang watch -> decide() -> RankProcesses::handle_loss() or end_job() -> StartOutcome

#include "core/file_descriptor.h"
#include "launch/flight/progress.h"
#include "launch/local/launcher.h"
#include "launch/local/process.h"

namespace chimera {

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
