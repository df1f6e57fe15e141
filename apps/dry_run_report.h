#pragma once

// The output of `train --dry-run`, which predicts a run without training: the layers of each pipeline stage, and the
// memory, computation and idle time (bubbles) of each rank. forecast() (train/setup/dry_run.h) makes the prediction;
// the functions here only format it.

#include "train/setup/device.h"
#include "train/setup/dry_run.h"
#include "train/setup/job.h"

namespace chimera::apps {

/// Returns tables of stages and ranks. `job` has the resolved settings of the run (train/setup/job.h), and `forecast`
/// is the prediction for it. `gpus` is the result of gpu_resources() (train/setup/device.h): what NCCL needs of each
/// GPU, or nothing for a job without GPUs.
[[nodiscard]] std::string dry_run_text(const Job& job, const Forecast& forecast,
                                       const std::optional<GpuResources>& gpus);
/// Returns the same as JSON; docs/footprint.md lists its fields.
[[nodiscard]] std::string dry_run_json(const Job& job, const Forecast& forecast,
                                       const std::optional<GpuResources>& gpus);

}  // namespace chimera::apps
