#include "plan/model_loads.h"

#include <algorithm>
#include <cmath>

#include "plan/layer_times.h"

namespace chimera {

ModelLoads flop_loads(const ModelConfig& model, const Workload& workload) {
  const auto stage = [&](std::int64_t blocks, bool embedding, bool head) {
    return stage_footprint(model, {0, blocks, embedding, head}, workload);
  };
  // A layer's load is the difference that it makes to a stage, so that sums over layers equal footprints of stages.
  const StageFootprint block = stage(1, false, false);
  const auto more = [&](const StageFootprint& with, const StageFootprint& without, double input) {
    const StageMemory& a = with.memory;
    const StageMemory& b = without.memory;
    return LayerLoad{with.forward_flops - without.forward_flops,
                     with.input_gradient_flops - without.input_gradient_flops,
                     with.weight_gradient_flops - without.weight_gradient_flops,
                     a.weights - b.weights,
                     a.gradients + a.optimizer - b.gradients - b.optimizer,
                     a.activations - b.activations + input,
                     *a.deferred - *b.deferred};
  };
  ModelLoads loads;
  loads.boundary = block.memory.boundary;
  loads.embedding = more(stage(1, true, false), block, loads.boundary);  // replaces the stage's input
  loads.head = more(stage(1, false, true), block, 0);
  loads.blocks.assign(static_cast<std::size_t>(model.layers), more(stage(2, false, false), block, 0));
  return loads;
}

CostModel stage_costs(const ModelLoads& loads, const std::vector<std::int64_t>& layers, bool recompute) {
  CostModel costs;
  auto block = loads.blocks.begin();
  for (std::size_t s = 0; s < layers.size(); ++s) {
    StageCosts stage{0, 0, 0, 0};
    const auto add = [&](const LayerLoad& layer) {
      stage.forward += layer.forward;
      stage.input_gradient += layer.input_gradient;
      stage.weight_gradient += layer.weight_gradient;
    };
    if (s == 0) add(loads.embedding);
    for (std::int64_t i = 0; i < layers[s]; ++i) add(*block++);
    if (s + 1 == layers.size()) add(loads.head);
    stage.backward = stage.input_gradient + stage.weight_gradient;
    if (recompute) costs.recompute.push_back(stage.forward);
    costs.stages.push_back(stage);
  }
  return costs;
}

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

}  // namespace chimera
