#pragma once
// --recompute (activation checkpointing): which stages keep only their input and run forward again before backward.

#include <set>

#include "core/ids.h"
#include "model_config/footprint.h"
#include "train/setup/job.h"

namespace chimera {

/// What full micro-batches of such a run ask of layers.
[[nodiscard]] Workload workload_of(const TrainOptions& options);

/// What --recompute of the job's options names: none; all stages; `auto`, those that have to so that every worker fits
/// in --memory GiB, by the bytes that planning counts (plan/worker_memory.h); or those listed. Throws ConfigError for a
/// stage that the job does not have, for `auto` without --memory, and where not even recomputing all stages fits.
[[nodiscard]] std::set<StageId> recomputed_stages(const Job& job);

}  // namespace chimera
