#pragma once
// The paper's performance model of its own schedule. Source: Li and Hoefler, SC'21, sections 3.2, 3.4 and 3.5.

#include <cstdint>

#include "generate/paper_model.h"

namespace chimera {

/// Of Chimera with any number of pipelines, and each way to run more than D micro-batches.
[[nodiscard]] CriticalOps chimera_critical_ops(const PipelineShape& shape, double ratio);

/// With f = 1 and w = min(worker, D-1-worker), the stage of larger id has the D/2-1-w backwards before the worker's
/// last op; all sums have w forwards and backwards around the step's end. With more pipelines the paper says nothing:
/// none.
[[nodiscard]] FreeRegions chimera_free_regions(const PipelineShape& shape, std::int64_t worker);

}  // namespace chimera
