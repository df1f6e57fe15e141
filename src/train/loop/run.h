#pragma once

// Start of a job's ranks in this process: all of them as threads, or one as a process of the launcher (launch/) or of
// another launcher such as srun. A rank connects to the others, trains (trainer.h), writes the outputs at the end, and
// reports how it ended.

#include "launch/local/rank.h"
#include "train/setup/job.h"

namespace chimera {

/// Runs every rank as a thread. An exception closes all channels; the first root cause is printed. Returns kSavedExit
/// if a signal made the run save and end.
[[nodiscard]] int run_threads(const Job& job);

/// Runs this process as a rank. Reports a failure to the launcher. Returns the exit code of run_threads().
[[nodiscard]] int run_rank(const Job& job, RankEnvironment rank);

}  // namespace chimera
