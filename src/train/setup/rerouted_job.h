#pragma once

// The job of the ranks that remain after a loss, if no replacement comes (--recover reroute). In it, the other ranks
// that hold the lost rank's stages do its work. It is an ordinary job with fewer ranks and another schedule
// (engine/rerouted_run.h): trainer and executor need no special case.

#include <chrono>
#include <optional>
#include <vector>

#include "train/setup/job.h"

namespace chimera {

/// Returns the job without these ranks. Model, data, checkpoints and options stay; run, canonical sums and programs
/// change. Throws ConfigError if the schedule cannot be rerouted.
[[nodiscard]] Job rerouted_job(const Job& launched, const std::vector<RankId>& lost);

/// Returns how long a recovery of the job waits for a replacement (LaunchPlan::spare_patience): not at all with
/// --recover reroute, forever if the schedule cannot be rerouted. Throws ConfigError if it must be rerouted and cannot.
[[nodiscard]] std::optional<std::chrono::milliseconds> spare_patience(const Job& job);

}  // namespace chimera
