#include "plan/own_layers.h"

#include <algorithm>
#include <cmath>

#include "passes/lower.h"

namespace chimera {

ModelLoads own_loads(const std::vector<OwnLayer>& layers, std::int64_t micro_batch_size, double scale) {
  const auto samples = static_cast<double>(micro_batch_size);
  const double at_once = std::round(samples * scale);
  ModelLoads loads;
  for (const OwnLayer& layer : layers) {
    const LayerTime time = time_at(layer.times, at_once);
    const double saved = layer.activations * samples;
    loads.blocks.push_back({time.forward / scale, time.input_gradient / scale, time.weight_gradient / scale,
                            layer.weights, layer.state, saved, saved});
    if (&layer != &layers.back()) loads.boundary = std::max(loads.boundary, layer.output * samples);
  }
  return loads;
}

StageModel own_bytes(const std::vector<OwnLayer>& layers, const std::vector<StageLayers>& partition,
                     std::int64_t micro_batch_size, const Workload& workload) {
  const auto samples = static_cast<double>(micro_batch_size);
  StageModel result;
  for (const StageLayers& stage : partition) {
    StageMemory memory;
    double state = 0;
    for (std::int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      const OwnLayer& layer = layers[static_cast<std::size_t>(i)];
      memory.weights += layer.weights;
      memory.activations += layer.activations * samples;
      state += layer.state;
    }
    memory.gradients = memory.weights;
    memory.optimizer = std::max(0.0, state - memory.gradients);
    if (stage.first_layer > 0)
      memory.boundary = layers[static_cast<std::size_t>(stage.first_layer - 1)].output * samples;
    memory.activations += memory.boundary;
    StageFootprint& footprint = result.footprints.emplace_back();
    footprint.parameters = std::llround(memory.weights / static_cast<double>(workload.weight_bytes));
    footprint.memory = memory;
    result.costs.memory.push_back(memory);
  }
  const LoweringOptions lowering;
  result.costs.buffers = {lowering.receives_ahead, lowering.sends_behind};
  return result;
}

}  // namespace chimera
