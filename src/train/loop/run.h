#pragma once

// Runs the ranks of a job in this process: all ranks as threads (run_threads()), or one rank, if this process was
// started by our launcher (src/launch) or by another one such as srun (run_rank()). A rank connects to the other ranks,
// trains (trainer.h), writes the outputs at the end of the run, and returns the exit code. `chimera train` calls these
// functions.

#include "launch/local/rank.h"
#include "train/setup/job.h"

namespace chimera {

/// Runs every rank as a thread. If a rank throws, all other ranks end, too, and the first error that was not caused by
/// another rank is printed. Returns the exit code: 0 after success, kSavedExit (75) if a signal made the run save and
/// end early, 1 if a rank has failed.
[[nodiscard]] int run_threads(const Job& job);

/// Runs this process as the rank that `rank` describes. If it fails, sends the launcher a report and returns
/// exit_code_of() the report (launch/local/failure_report.h); otherwise returns 0 or kSavedExit, as run_threads() does.
[[nodiscard]] int run_rank(const Job& job, RankEnvironment rank);

}  // namespace chimera
