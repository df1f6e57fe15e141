#include "plan/balanced_cut.h"

#include <algorithm>
#include <cmath>

#include "plan/balance.h"
#include "plan/own_layers.h"
#include "plan/tensor_parallel.h"

namespace chimera {
namespace {

/// Bytes by footprint, times of the machine; of full micro-batches.
ModelLoads machine_loads(const PlanProblem& problem, const Candidate& candidate, double micro_batch_scale) {
  if (!problem.layers.empty()) return own_loads(problem.layers, candidate.micro_batch_size, micro_batch_scale);
  Workload workload = problem.workload;
  workload.micro_batch_size = candidate.micro_batch_size;
  ModelLoads loads = flop_loads(problem.model, workload);
  workload.micro_batch_size = std::llround(static_cast<double>(workload.micro_batch_size) * micro_batch_scale);
  const auto set_times = [&](LayerLoad& load, LayerKind kind) {
    const std::int64_t count = candidate.tensor_parallel;
    const LayerTime time = split_layer_time(problem.machine, problem.model, kind, workload, count);
    const LayerTime sums = tensor_sums(problem.machine, problem.model, kind, workload, count);
    load.forward = (time.forward + sums.forward) / micro_batch_scale;
    load.input_gradient = (time.input_gradient + sums.input_gradient) / micro_batch_scale;
    load.weight_gradient = time.weight_gradient / micro_batch_scale;
    for (double* bytes : {&load.weights, &load.state}) *bytes /= static_cast<double>(count);
    for (double* bytes : {&load.activations, &load.deferred}) *bytes *= held_activations(count);
  };
  set_times(loads.embedding, LayerKind::Embedding);
  set_times(loads.head, LayerKind::Head);
  set_times(loads.blocks.front(), LayerKind::Block);
  std::ranges::fill(loads.blocks, loads.blocks.front());
  return loads;
}

}  // namespace

std::optional<PartitionChoice> balanced_cut(Predictor& predictor, const Candidate& candidate) {
  constexpr std::int64_t kOps = 100'000;
  const PlannedSchedule planned = predictor.prepare(candidate);
  const std::int64_t stages = planned.schedule->stages;
  if (stages < 2) return std::nullopt;
  const std::int64_t cuts = kOps / std::max<std::int64_t>(num_ops(*planned.schedule), 1);
  BalanceOptions options{.memory = predictor.problem().memory_bytes, .recompute = !candidate.recompute.empty()};
  options.candidates = std::clamp<std::int64_t>(cuts, 1, 100);
  options.steps = std::clamp<std::int64_t>(cuts / (stages * stages), 0, 3);
  const ModelLoads loads = machine_loads(predictor.problem(), candidate, planned.schedule->micro_batch_scale);
  const auto found = balance(*planned.schedule, loads, options);
  if (!found) return std::nullopt;
  const auto cut = explicit_partition(found->layers, predictor.problem().model.layers, stages);
  if (cut == planned.partition) return std::nullopt;
  return PartitionChoice{PartitionRule::Listed, found->layers};
}

}  // namespace chimera
