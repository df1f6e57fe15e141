#include "plan/tensor_parallel.h"

#include <algorithm>
#include <cmath>

namespace chimera {
namespace {

/// T workers beyond one node all-reduce in rings, one for each device of a node.
double tensor_sum_seconds(const MachineProfile& machine, double bytes, std::int64_t tensor_parallel) {
  if (tensor_parallel <= machine.workers_per_node)
    return sum_seconds(machine, machine.all_reduce.within_node, tensor_parallel, bytes);
  // On CPUs, the ranks of a node share one connection.
  const std::int64_t near = machine.cores == 0 ? machine.workers_per_node : 1;
  return sum_seconds(machine, link_of_rings(machine, near), tensor_parallel, bytes);
}

/// Returns the seconds of exchanges inside the ops of a layer, as profiled. With cut tokens, a layer that is split by
/// columns gathers 1/T of the hidden states of each rank, and one that is split by rows exchanges all of them; the
/// backward does the opposite.
LayerTime exchanges(const MachineProfile& machine, LayerKind kind, double states, double losses,
                    const Workload& workload, std::int64_t tensor_parallel) {
  const auto slices = static_cast<double>(workload.slices);
  const auto count = static_cast<double>(tensor_parallel);
  const auto exchange = [&](double bytes) {
    return slices * machine.op_sum.alpha * std::log2(count) + machine.op_sum.beta * bytes;
  };
  const double all = exchange(states);
  const double own = divides_tokens(workload, tensor_parallel) ? exchange(states / count) : 0;
  switch (kind) {
    case LayerKind::Embedding: return {.forward = all, .input_gradient = own};
    case LayerKind::Block: return {.forward = 2 * (all + own), .input_gradient = 2 * (all + own)};
    case LayerKind::Head: return {.forward = own + exchange((1 + count) * losses), .input_gradient = all};
  }
  return {};
}

}  // namespace

bool divides_tokens(const Workload& workload, std::int64_t tensor_parallel) {
  return workload.cuts_tokens && workload.sequence % tensor_parallel == 0;
}

bool has_op_sums(const MachineProfile& machine, std::int64_t tensor_parallel) {
  return machine.op_sum != LinkTimes{} && tensor_parallel > 1 && tensor_parallel <= machine.workers_per_node;
}

LayerTime split_layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                           const Workload& workload, std::int64_t tensor_parallel) {
  // A DeviceModel knows the parts of T ranks.
  if (tensor_parallel == 1 || machine.has_device() ||
      has_layer_as_near(machine, model, kind, workload, tensor_parallel))
    return layer_time(machine, model, kind, workload, tensor_parallel);
  const LayerTime whole = layer_time(machine, model, kind, workload);
  // Without measured split layers: the time that grows with the number of sequences is divided by T, and the fixed rest
  // stays. Two sizes tell the two apart.
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

double tensor_gather_seconds(const MachineProfile& machine, double bytes, double count, std::int64_t tensor_parallel) {
  if (tensor_parallel == 1) return 0;
  // An all-gather takes half the time of an all-reduce.
  if (!has_op_sums(machine, tensor_parallel)) return 0.5 * tensor_sum_seconds(machine, bytes, tensor_parallel);
  return count * machine.op_sum.alpha * std::log2(static_cast<double>(tensor_parallel)) +
         machine.op_sum.beta * bytes / static_cast<double>(tensor_parallel);
}

LayerTime tensor_sums(const MachineProfile& machine, const ModelConfig& model, LayerKind kind, const Workload& workload,
                      std::int64_t tensor_parallel) {
  LayerTime sums{.micro_batch_size = workload.micro_batch_size};
  if (tensor_parallel == 1) return sums;
  const auto tokens = static_cast<double>(workload.micro_batch_size * workload.sequence);
  const double states = tokens * static_cast<double>(model.hidden * workload.compute_bytes);
  if (has_op_sums(machine, tensor_parallel)) {
    sums = exchanges(machine, kind, states, tokens * sizeof(float), workload, tensor_parallel);
    sums.micro_batch_size = workload.micro_batch_size;
    sums.recompute = sums.forward;
    return sums;
  }
  const auto slices = static_cast<double>(workload.slices);
  const double exposed = machine.is_fused() ? 1 - machine.device.fused_sums : 1;
  const auto sum = [&](double bytes) {
    return exposed * slices * tensor_sum_seconds(machine, bytes / slices, tensor_parallel);
  };
  const double all = sum(states);
  const double half = divides_tokens(workload, tensor_parallel) ? all / 2 : 0;  // a reduce-scatter or an all-gather
  switch (kind) {
    case LayerKind::Embedding:
      sums.forward = all - half;
      sums.input_gradient = half;
      break;
    case LayerKind::Block: sums.forward = sums.input_gradient = 2 * all; break;
    case LayerKind::Head:
      sums.forward = half + sum(static_cast<double>(1 + tensor_parallel) * tokens * sizeof(float));
      sums.input_gradient = all - half;
      break;
  }
  sums.recompute = sums.forward;
  return sums;
}

}  // namespace chimera
