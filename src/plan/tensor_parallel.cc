#include "plan/tensor_parallel.h"

#include <algorithm>

#include "model_config/parameters.h"

namespace chimera {
namespace {

/// T workers beyond one node all-reduce in rings, one for each device of a node.
double tensor_sum_seconds(const MachineProfile& machine, double bytes, std::int64_t tensor_parallel) {
  if (tensor_parallel <= machine.workers_per_node)
    return sum_seconds(machine, machine.all_reduce.within_node, tensor_parallel, bytes);
  const std::int64_t near = machine.cores == 0 ? machine.workers_per_node : 1;
  return sum_seconds(machine, link_of_rings(machine, near), tensor_parallel, bytes);
}

std::vector<ParameterSpec> parameters_of(const ModelConfig& model, LayerKind kind) {
  switch (kind) {
    case LayerKind::Embedding: return embedding_parameters(model);
    case LayerKind::Block: return block_parameters(model, 0);
    case LayerKind::Head: return head_parameters(model);
  }
  return {};
}

}  // namespace

bool can_split(const ModelConfig& model, std::int64_t tensor_parallel) {
  return model.heads % tensor_parallel == 0 && key_value_heads_of(model) % tensor_parallel == 0 &&
         model.feed_forward % tensor_parallel == 0;
}

LayerTime split_layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                           const Workload& workload, std::int64_t tensor_parallel) {
  const LayerTime whole = layer_time(machine, model, kind, workload);
  if (tensor_parallel == 1) return whole;
  Workload twice = workload;
  twice.micro_batch_size *= 2;
  const LayerTime more = layer_time(machine, model, kind, twice);
  const auto count = static_cast<double>(tensor_parallel);
  LayerTime split = whole;
  for (double LayerTime::*part :
       {&LayerTime::forward, &LayerTime::input_gradient, &LayerTime::weight_gradient, &LayerTime::recompute}) {
    const double of_sequences = more.*part - whole.*part;
    split.*part = std::clamp(whole.*part - of_sequences * (1 - 1 / count), whole.*part / count, whole.*part);
  }
  return split;
}

LayerTime tensor_sums(const MachineProfile& machine, const ModelConfig& model, LayerKind kind, const Workload& workload,
                      std::int64_t tensor_parallel) {
  LayerTime sums{.micro_batch_size = workload.micro_batch_size};
  if (tensor_parallel == 1) return sums;
  const auto tokens = static_cast<double>(workload.micro_batch_size * workload.sequence);
  const double states = tokens * static_cast<double>(model.hidden * workload.compute_bytes);
  const auto slices = static_cast<double>(workload.slices);
  const auto sum = [&](double bytes) { return slices * tensor_sum_seconds(machine, bytes / slices, tensor_parallel); };
  const double each = sum(states);
  switch (kind) {
    case LayerKind::Embedding: sums.forward = each; break;
    case LayerKind::Block: sums.forward = sums.input_gradient = sums.recompute = 2 * each; break;
    case LayerKind::Head:
      sums.forward = 3 * sum(tokens * sizeof(float));
      sums.input_gradient = each;
      break;
  }
  return sums;
}

std::int64_t parameters_per_worker(const ModelConfig& model, LayerKind kind, std::int64_t tensor_parallel) {
  std::int64_t held = 0;
  for (const ParameterSpec& spec : parameters_of(model, kind)) {
    const bool matrix = spec.shape.size() == 2;
    const bool split = matrix && (kind == LayerKind::Block || spec.shape[0] == model.vocabulary);
    held += split ? (spec.count() + tensor_parallel - 1) / tensor_parallel : spec.count();
  }
  return held;
}

bool cuts_tokens(const Workload& workload, std::int64_t tensor_parallel) {
  return tensor_parallel > 1 && workload.sequence % tensor_parallel == 0;
}

double activation_fraction(std::int64_t tensor_parallel, bool cuts_tokens) {
  const auto count = static_cast<double>(tensor_parallel);
  return (cuts_tokens ? 4 + 30 / count : 10 + 24 / count) / 34;
}

}  // namespace chimera
