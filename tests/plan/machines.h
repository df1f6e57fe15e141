#pragma once
// Machines with figures simple enough to compute by hand.

#include "plan/machine.h"
#include "plan/plan.h"

namespace chimera {

/// Times of a layer at micro-batch sizes b = 1, 2 and 4: forward 2 + b, input gradient b, weight gradient 2b,
/// recomputation 1 + b.
inline LayerTimes round_layer(LayerKind kind, const std::string& model = "gpt2-mini") {
  LayerTimes layer{kind, find_model(model), 128, DataType::Float32, {}};
  layer.model.layers = 1;
  for (const std::int64_t size : {1, 2, 4}) {
    const auto b = static_cast<double>(size);
    layer.times.push_back({size, 2 + b, b, 2 * b, 1 + b, b / 100});
  }
  return layer;
}

/// Two workers that share two cores.
inline MachineProfile round_machine() {
  MachineProfile machine{.name = "round", .sources = {"made up"}, .cores = 2, .workers_per_node = 2};
  machine.memory_bytes = 4e9;
  for (const LayerKind kind : {LayerKind::Embedding, LayerKind::Block, LayerKind::Head})
    machine.layers.push_back(round_layer(kind));
  machine.point_to_point = {{1, 2}, {3, 4}};
  machine.all_reduce = {{5, 6}, {7, 8}};
  machine.optimizer_seconds = 9;
  machine.matrix_flops = {{DataType::Float32, 100}, {DataType::Float64, 50}};
  machine.op_overhead = 10;
  machine.step_overhead = 11;
  return machine;
}

/// Layers that take b seconds forward and 2b backward, on separate devices; messages, all-reduces and updates are free.
inline MachineProfile linear_machine() {
  MachineProfile machine;
  machine.workers_per_node = 64;
  machine.memory_bytes = 1e12;
  for (const LayerKind kind : {LayerKind::Embedding, LayerKind::Block, LayerKind::Head}) {
    LayerTimes layer{kind, find_model("gpt2-mini"), 128, DataType::Float32, {}};
    const double each = kind == LayerKind::Block ? 1 : 0;
    for (const std::int64_t size : {1, 2}) {
      const double seconds = each * static_cast<double>(size);
      layer.times.push_back({size, seconds, seconds, seconds, seconds, 0});
    }
    machine.layers.push_back(layer);
  }
  return machine;
}

/// Training of gpt2-mini on linear_machine().
inline PlanProblem problem_of(std::int64_t workers, std::int64_t mini_batch) {
  PlanProblem problem;
  problem.model = find_model("gpt2-mini");  // 8 layers
  problem.machine = linear_machine();
  problem.workers = workers;
  problem.mini_batch = mini_batch;
  problem.memory_bytes = problem.machine.memory_bytes;
  return problem;
}

}  // namespace chimera
