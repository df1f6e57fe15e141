#pragma once
// What a model's arithmetic takes, whoever computes it and how often.

#include "model_config/footprint.h"

namespace chimera {

/// FLOPs of one forward and backward of the whole model for a micro-batch: what model FLOPs utilization counts
/// (Chowdhery et al., PaLM, 2022, appendix B). Products that recomputation or the head make again are not in it.
/// Throws ConfigError as layer_footprint() does.
[[nodiscard]] double model_flops(const ModelConfig& config, const Workload& workload);

}  // namespace chimera
