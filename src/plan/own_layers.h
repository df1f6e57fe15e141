#pragma once

#include <cstdint>
#include <vector>

#include "model_config/partition.h"
#include "plan/balance.h"
#include "plan/candidate.h"
#include "plan/stage_model.h"

namespace chimera {

/// Returns the time of a micro-batch of `size` samples: linear between measured sizes, extrapolated along the nearest
/// two, or in proportion to a single size. `spread` comes from the nearest size. Requires at least one time.
[[nodiscard]] LayerTime time_at(const std::vector<LayerTime>& times, double size);

/// Returns loads for micro-batches of `micro_batch_size` samples; the schedule runs `scale` of each at once. All saved
/// activations are kept until W.
[[nodiscard]] ModelLoads own_loads(const std::vector<OwnLayer>& layers, std::int64_t micro_batch_size, double scale);

/// Returns bytes as stage_bytes() does; working sets are unknown and therefore 0.
[[nodiscard]] StageModel own_bytes(const std::vector<OwnLayer>& layers, const std::vector<StageLayers>& partition,
                                   std::int64_t micro_batch_size, const Workload& workload);

}  // namespace chimera
