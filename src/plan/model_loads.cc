#include "plan/model_loads.h"

#include <algorithm>
#include <cmath>

#include "plan/layer_times.h"

namespace chimera {
namespace {

/// Bytes that element-wise kernels move in each op; products also read and write their matrices, which counts here.
LayerLoad moved_bytes(const ModelConfig& model, LayerKind kind, const Workload& workload) {
  const LayerFootprint layer = layer_footprint(model, kind, workload);
  const auto tokens = static_cast<double>(workload.micro_batch_size * workload.sequence);
  const double states = tokens * static_cast<double>(model.hidden * workload.compute_bytes);
  // The head's forward also multiplies the gradient of its logits: 4 FLOPs per logit and channel.
  const double logits = layer.forward_flops / (4 * static_cast<double>(model.hidden));
  switch (kind) {
    case LayerKind::Embedding: return {.forward = 8 * states, .weight_gradient = 4 * states};
    case LayerKind::Block:
      return {.forward = 3 * layer.activations,
              .input_gradient = 4 * layer.activations,
              .weight_gradient = layer.activations};
    case LayerKind::Head: return {.forward = 22 * logits, .weight_gradient = 8 * logits};
  }
  return {};
}

}  // namespace

ModelLoads flop_loads(const ModelConfig& model, const Workload& workload, double flops_per_byte, RecomputeLevel level) {
  const auto stage = [&](std::int64_t blocks, bool embedding, bool head) {
    return stage_footprint(model, {0, blocks, embedding, head, BlockLevels::at(level, blocks)}, workload);
  };
  // A layer's load is the difference that it makes to a stage, so that sums over layers equal footprints of stages. Two
  // blocks minus one block are the load of a block; what a stage has once, such as its input, cancels out.
  const StageFootprint block = stage(1, false, false);
  Workload of_all_ranks = workload;  // as FLOPs are
  of_all_ranks.tensor_parallel = 1;
  const auto more = [&](LayerKind kind, const StageFootprint& with, const StageFootprint& without, double input) {
    const StageMemory& a = with.memory;
    const StageMemory& b = without.memory;
    const LayerLoad moved = flops_per_byte > 0 ? moved_bytes(model, kind, of_all_ranks) : LayerLoad();
    return LayerLoad{
        with.forward_flops - without.forward_flops + flops_per_byte * moved.forward,
        with.input_gradient_flops - without.input_gradient_flops + flops_per_byte * moved.input_gradient,
        with.weight_gradient_flops - without.weight_gradient_flops + flops_per_byte * moved.weight_gradient,
        a.weights - b.weights,
        a.gradients + a.optimizer - b.gradients - b.optimizer,
        a.activations - b.activations + input,
        *a.deferred - *b.deferred};
  };
  ModelLoads loads;
  loads.boundary = block.memory.boundary;
  loads.embedding =
      more(LayerKind::Embedding, stage(1, true, false), block, loads.boundary);  // replaces the stage's input
  loads.head = more(LayerKind::Head, stage(1, false, true), block, 0);
  loads.blocks.assign(static_cast<std::size_t>(model.layers), more(LayerKind::Block, stage(2, false, false), block, 0));
  // The head may free more than it keeps: the output of the last block, which is on its stage.
  const double freed = std::min(loads.head.activations, 0.0);
  // Loads must not be negative (require_load() in balance.cc).
  loads.head.activations -= freed;
  loads.blocks.back().activations += freed;
  return loads;
}

ModelLoads machine_loads(const PlanProblem& problem, const Candidate& candidate, double micro_batch_scale,
                         RecomputeLevel level) {
  if (!problem.layers.empty()) return own_loads(problem.layers, candidate.micro_batch_size, micro_batch_scale);
  Workload workload = problem.workload;
  workload.micro_batch_size = candidate.micro_batch_size;
  Workload split = workload;
  split.tensor_parallel = candidate.tensor_parallel;
  ModelLoads loads = flop_loads(problem.model, split, 0, level);
  // Ops run on halves with backward halving. Loads are per full micro-batch, so the times are divided again.
  workload.micro_batch_size = std::llround(static_cast<double>(workload.micro_batch_size) * micro_batch_scale);
  workload.slices = candidate.shape.slices;
  const auto set_times = [&](LayerLoad& load, LayerKind kind) {
    const std::int64_t count = candidate.tensor_parallel;
    const LayerTime time = split_layer_time(problem.machine, problem.model, kind, workload, count);
    const LayerTime sums = tensor_sums(problem.machine, problem.model, kind, workload, count);
    load.forward = (time.forward + sums.forward) / micro_batch_scale;
    load.input_gradient = (time.input_gradient + sums.input_gradient) / micro_batch_scale;
    load.weight_gradient = time.weight_gradient / micro_batch_scale;
  };
  set_times(loads.embedding, LayerKind::Embedding);
  set_times(loads.head, LayerKind::Head);
  LayerLoad times;
  set_times(times, LayerKind::Block);
  times.input_gradient +=
      recompute_seconds(problem.machine, problem.model, split, level, times.forward * micro_batch_scale) /
      micro_batch_scale;
  for (LayerLoad& block : loads.blocks)
    for (const auto time : {&LayerLoad::forward, &LayerLoad::input_gradient, &LayerLoad::weight_gradient})
      block.*time = times.*time;
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
    const LayerTime time = interpolate_time(layer.times, at_once);
    const double saved = layer.activations * samples;
    loads.blocks.push_back({time.forward / scale, time.input_gradient / scale, time.weight_gradient / scale,
                            layer.weights, layer.state, saved, saved});
    if (&layer != &layers.back()) loads.boundary = std::max(loads.boundary, layer.output * samples);
  }
  return loads;
}

}  // namespace chimera
