#pragma once

#include "launch/local/rank.h"
#include "train/setup/job.h"

namespace chimera {

/// Runs every rank (also a single unpipelined worker) as a thread. An exception in one rank closes all channels; the
/// first root cause is printed. Returns the exit code: kSavedExit if a signal made the run save and end.
[[nodiscard]] int run_threads(const Job& job);

/// Runs this process as one rank. Reports a failure to the launcher, which prints it. Returns the exit code, as
/// run_threads().
[[nodiscard]] int run_rank(const Job& job, RankEnvironment rank);

}  // namespace chimera
