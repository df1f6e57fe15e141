#pragma once
// The paper's performance model of its own schedule. Source: Li and Hoefler, SC'21, sections 3.2, 3.4 and 3.5.

#include <cstdint>

#include "generate/paper_model.h"

namespace chimera {

/// The critical path of Chimera, with any number of pipelines and each scale method.
[[nodiscard]] CriticalOps chimera_critical_ops(const PipelineShape& shape, double ratio);

/// The bubbles that hide sums of gradients. With f = 1 and w = min(worker, D-1-worker): D/2-1-w backwards before the
/// worker's last op for its stage of larger id, and w forwards and backwards around the step's end for all. The paper
/// does not say for f > 1: none.
[[nodiscard]] FreeRegions chimera_free_regions(const PipelineShape& shape, std::int64_t worker);

}  // namespace chimera
