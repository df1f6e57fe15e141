#pragma once
// Where a run that has failed goes on.

#include "launch/local/launcher.h"
#include "train/setup/job.h"

namespace chimera {

/// The start from the newest good checkpoint of the job's folder; where that has none yet, from where the job began.
/// Says on messages() which newer checkpoints were refused. The arguments are flags of `chimera train`.
[[nodiscard]] NextStart next_start(const Job& job, std::int64_t failed_step);

/// The flag with which ranks are told the step, from 1, in which the start before has failed.
inline constexpr const char* kFailedStepFlag = "--failed-step";

}  // namespace chimera
