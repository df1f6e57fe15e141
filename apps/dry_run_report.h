#pragma once

// What `train --dry-run` prints: stages, and memory, work and bubbles of every rank, as forecast() predicts them.

#include <optional>
#include <string>

#include "train/setup/device.h"
#include "train/setup/dry_run.h"
#include "train/setup/job.h"

namespace chimera::apps {

[[nodiscard]] std::string dry_run_text(const Job& job, const Forecast& forecast,
                                       const std::optional<GpuResources>& gpus);
/// Fields: docs/footprint.md.
[[nodiscard]] std::string dry_run_json(const Job& job, const Forecast& forecast,
                                       const std::optional<GpuResources>& gpus);

}  // namespace chimera::apps
