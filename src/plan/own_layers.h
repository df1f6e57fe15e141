#pragma once
// A user's own layers in a plan: their times and bytes as they were measured, in place of those of a preset model.

#include <cstdint>
#include <vector>

#include "model_config/partition.h"
#include "plan/balance.h"
#include "plan/candidate.h"
#include "plan/stage_model.h"

namespace chimera {

/// What a layer takes for a micro-batch of `size` samples: linear between the measured sizes, and beyond them as their
/// last two go on. In proportion where one size was measured. A spread is that of the nearest. Requires a time.
[[nodiscard]] LayerTime time_at(const std::vector<LayerTime>& times, double size);

/// The layers as balance() takes them, for micro-batches of `micro_batch_size` samples; times are those of a schedule
/// that runs `scale` of each at once. All that a layer saves is kept until its W.
[[nodiscard]] ModelLoads own_loads(const std::vector<OwnLayer>& layers, std::int64_t micro_batch_size, double scale);

/// Bytes of the stages, as stage_bytes() has them. Working sets are not known: they are 0.
[[nodiscard]] StageModel own_bytes(const std::vector<OwnLayer>& layers, const std::vector<StageLayers>& partition,
                                   std::int64_t micro_batch_size, const Workload& workload);

}  // namespace chimera
