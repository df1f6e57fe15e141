#pragma once
// Runs a job in this process: all ranks as threads, or one of them as a process. Both turn failures into an exit code.

#include "launch/rank.h"
#include "train/job.h"

namespace chimera {

/// Every rank as a thread; also the unpipelined run, with its one worker. An exception in one rank closes all
/// channels; the first to fail for a reason of its own is printed. Returns the exit code.
[[nodiscard]] int run_threads(const Job& job);

/// This process as one rank over Gloo. A failure is told to the launcher, which prints it. Returns the exit code.
[[nodiscard]] int run_rank(const Job& job, const RankEnvironment& rank);

}  // namespace chimera
