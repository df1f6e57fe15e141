#pragma once
// Training by a schedule that updates weights between its ops: runs of steps without a flush.

#include <cstdint>
#include <map>

#include "passes/stream.h"
#include "train/job.h"

namespace chimera {

/// Refuses what an asynchronous schedule gives no meaning to, and more micro-batches than can be numbered. Requires
/// options, model, schedule and ranks. Throws ConfigError.
void require_asynchronous(const Job& job);

/// The checked programs of the job's runs, by their number of steps: that of run_of(0), and of the last where it is
/// shorter. Throws ConfigError as lower_stream() does, and where the schedule, repeated, is no longer valid.
[[nodiscard]] std::map<std::int64_t, Stream> lower_runs(const Job& job, const LoweringOptions& options);

}  // namespace chimera
