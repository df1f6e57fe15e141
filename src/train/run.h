#pragma once
// Runs a job in this process: all workers as threads, or one of them as a rank. Both turn failures into an exit code.

#include "launch/rank.h"
#include "train/job.h"

namespace chimera {

/// Cores that this process may use.
[[nodiscard]] int available_cores();

/// Every worker as a thread; also the unpipelined run, with its one worker. An exception in one worker closes all
/// channels; the first to fail for a reason of its own is printed. Returns the exit code.
[[nodiscard]] int run_threads(const Job& job);

/// This process as one rank over Gloo. A failure is told to the launcher, which prints it. Returns the exit code.
[[nodiscard]] int run_rank(const Job& job, const RankEnvironment& rank);

}  // namespace chimera
