#pragma once

// Time and memory of each layer, the input of the search for cuts. A cut assigns consecutive layers to stages; the load
// of a stage is the sum over its layers. Times come from FLOPs here, and from a machine profile in plan/plan.cc.

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "plan/candidate.h"
#include "simulate/costs.h"

namespace chimera {

/// Load of a layer: times of a full micro-batch in any unit, and bytes.
struct LayerLoad {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double weights = 0;      // bytes per version and copy
  double state = 0;        // gradients and optimizer state per copy
  double activations = 0;  // kept from F to B or I for a full micro-batch, without the layer's input
  double deferred = 0;     // part of `activations` that is kept from I to W
  friend std::partial_ordering operator<=>(const LayerLoad&, const LayerLoad&) = default;
};
inline constexpr auto kLoads = std::to_array<double LayerLoad::*>(
    {&LayerLoad::forward, &LayerLoad::input_gradient, &LayerLoad::weight_gradient, &LayerLoad::weights,
     &LayerLoad::state, &LayerLoad::activations, &LayerLoad::deferred});

struct ModelLoads {
  LayerLoad embedding;            // always on the first stage
  std::vector<LayerLoad> blocks;  // [L]
  LayerLoad head;                 // always on the last stage
  double boundary = 0;            // bytes of a later stage's input for a full micro-batch
};

/// Returns loads with FLOPs as times and bytes from footprints. `workload` describes a full micro-batch.
[[nodiscard]] ModelLoads flop_loads(const ModelConfig& model, const Workload& workload);

/// Returns the costs of stages with `layers` blocks each, which must sum to the number of blocks.
[[nodiscard]] CostModel stage_costs(const ModelLoads& loads, const std::vector<std::int64_t>& layers,
                                    bool recompute = false);

/// Returns loads for micro-batches of `micro_batch_size` samples; the schedule runs `scale` of each at once. All saved
/// activations are kept until W.
[[nodiscard]] ModelLoads own_loads(const std::vector<OwnLayer>& layers, std::int64_t micro_batch_size, double scale);

}  // namespace chimera
