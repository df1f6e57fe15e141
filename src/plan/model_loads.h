#pragma once

// Time and memory of each layer, the input of balance() (balance.h), which assigns consecutive layers to stages; the
// load of a stage is the sum over its layers. Times come from FLOPs and bytes, or from a machine profile. The ops of a
// stage are the forward (F), and a whole backward (B) or its two halves: input gradient (I) and weight gradient (W).

#include <compare>

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
  double weights = 0;      // bytes of the weights, of one version on one worker
  double state = 0;        // bytes of gradients and optimizer state on one worker
  double activations = 0;  // bytes kept from F to B or I for a full micro-batch, without the layer's input
  double deferred = 0;     // bytes of `activations` that are kept further, from I to W
  friend std::partial_ordering operator<=>(const LayerLoad&, const LayerLoad&) = default;
};
/// All fields of LayerLoad.
inline constexpr auto kLoads = std::to_array<double LayerLoad::*>(
    {&LayerLoad::forward, &LayerLoad::input_gradient, &LayerLoad::weight_gradient, &LayerLoad::weights,
     &LayerLoad::state, &LayerLoad::activations, &LayerLoad::deferred});

/// Loads of the layers of a model.
struct ModelLoads {
  LayerLoad embedding;            // always on the first stage
  std::vector<LayerLoad> blocks;  // [block]
  LayerLoad head;                 // always on the last stage
  double boundary = 0;            // bytes of a stage's input for a full micro-batch, except on the first stage
};

/// Returns loads with FLOPs as times and bytes from footprints. `workload` describes a full micro-batch. A byte that
/// element-wise kernels move takes the time of `flops_per_byte` FLOPs. A block moves 8 times its activations, which
/// gives 46 % of an H200's bfloat16 peak for gpt2-64 (measured: 45 %); the head moves 30 bytes per logit. All blocks
/// recompute at `level`.
[[nodiscard]] ModelLoads flop_loads(const ModelConfig& model, const Workload& workload, double flops_per_byte = 0,
                                    RecomputeLevel level = RecomputeLevel::None);

/// Returns loads with the times of the problem's machine, as stage_model() would give for single layers, and bytes from
/// footprints. `micro_batch_scale` is Schedule::micro_batch_scale: the schedule may run halves of micro-batches, but
/// the loads are for full micro-batches. All blocks recompute at `level`. Throws ConfigError if the profile does not
/// cover the model.
[[nodiscard]] ModelLoads machine_loads(const PlanProblem& problem, const Candidate& candidate, double micro_batch_scale,
                                       RecomputeLevel level = RecomputeLevel::None);

/// Returns the costs of stages for the simulator: only times of ops, no bytes. Stage s has `layers[s]` blocks, and the
/// sum of `layers` must be the number of blocks. `recompute`: whether all stages recompute activations.
[[nodiscard]] CostModel stage_costs(const ModelLoads& loads, const std::vector<std::int64_t>& layers,
                                    bool recompute = false);

/// Returns the loads of a user's own layers (OwnLayer in candidate.h) for micro-batches of `micro_batch_size` samples.
/// `scale` is Schedule::micro_batch_scale, the size of the schedule's micro-batches relative to `micro_batch_size`. All
/// activations are kept until W.
[[nodiscard]] ModelLoads own_loads(const std::vector<OwnLayer>& layers, std::int64_t micro_batch_size, double scale);

}  // namespace chimera
