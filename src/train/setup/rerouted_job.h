#pragma once

// The job of the ranks that remain after a loss, if no replacement comes (--recover reroute). It is an ordinary job with
// fewer ranks and another schedule (engine/rerouted_run.h): trainer and executor need no special case.

#include <vector>

#include "train/setup/job.h"

namespace chimera {

/// Returns the job without these ranks. Model, data, checkpoints and options stay; run, canonical sums and programs
/// change. Throws ConfigError if the schedule cannot be rerouted.
[[nodiscard]] Job rerouted_job(const Job& launched, const std::vector<RankId>& lost);

/// Throws ConfigError if rerouted_job() cannot work for a rank of this job.
void require_reroutes(const Job& job);

}  // namespace chimera
