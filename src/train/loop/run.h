#pragma once
// Runs a job in this process: all ranks as threads, or one of them as a process. Both turn failures into an exit code.

#include "launch/local/rank.h"
#include "train/setup/job.h"

namespace chimera {

/// Runs every rank as a thread; also the unpipelined run, with its one worker. An exception in one rank closes all
/// channels; the first to fail for a reason of its own is printed. Returns the exit code, kSavedExit where a
/// signal has asked the run to save and end.
[[nodiscard]] int run_threads(const Job& job);

/// Runs this process as one rank over Gloo. A failure is told to the launcher, which prints it. Returns the exit code,
/// as run_threads().
[[nodiscard]] int run_rank(const Job& job, RankEnvironment rank);

}  // namespace chimera
