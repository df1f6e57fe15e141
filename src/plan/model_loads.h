#pragma once

// Time and memory of each layer, the input of the search for cuts. A cut assigns consecutive layers to stages; the load
// of a stage is the sum over its layers. Times come from FLOPs and bytes, or from a machine profile.

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

/// Float32 products of a CPU core by the bytes that it moves meanwhile: about 100 GFLOP/s and 10 GB/s.
inline constexpr double kFlopsPerByteOfCpu = 10;

/// Returns loads with FLOPs as times and bytes from footprints. `workload` describes a full micro-batch. A byte that
/// element-wise kernels move takes the time of `flops_per_byte` FLOPs. A block moves 8 times its activations, which
/// gives 46 % of an H200's bfloat16 peak for gpt2-64 (measured: 45 %); the head moves 30 bytes per logit.
[[nodiscard]] ModelLoads flop_loads(const ModelConfig& model, const Workload& workload, double flops_per_byte = 0);

/// Returns loads with the times of the problem's machine, as stage_model() would give for single layers, and bytes from
/// footprints. Times are for full micro-batches, although the schedule may run halves. Throws ConfigError if the
/// profile does not cover the model.
[[nodiscard]] ModelLoads machine_loads(const PlanProblem& problem, const Candidate& candidate,
                                       double micro_batch_scale);

/// Returns the costs of stages with `layers` blocks each, which must sum to the number of blocks.
[[nodiscard]] CostModel stage_costs(const ModelLoads& loads, const std::vector<std::int64_t>& layers,
                                    bool recompute = false);

/// Returns loads for micro-batches of `micro_batch_size` samples; the schedule runs `scale` of each at once. All saved
/// activations are kept until W.
[[nodiscard]] ModelLoads own_loads(const std::vector<OwnLayer>& layers, std::int64_t micro_batch_size, double scale);

}  // namespace chimera
