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
  const auto slices = static_cast<double>(workload.slices);
  const auto count = static_cast<double>(tensor_parallel);
  const bool is_measured = has_op_sums(machine, tensor_parallel);
  const auto sum = [&](double bytes) {
    if (is_measured) return slices * machine.op_sum.alpha * std::log2(count) + machine.op_sum.beta * bytes;
    const double exposed = machine.is_fused() ? 1 - machine.device.fused_sums : 1;
    return exposed * slices * tensor_sum_seconds(machine, bytes / slices, tensor_parallel);
  };
  double all = sum(states);
  double own = 0;
  if (divides_tokens(workload, tensor_parallel)) {
    // A layer that is split by columns gathers 1/T of the hidden states of each rank, and one that is split by rows
    // exchanges all of them; the backward does the opposite. Not measured, each takes half of an all-reduce.
    own = is_measured ? sum(states / count) : all / 2;
    if (!is_measured) all -= own;
  }
  switch (kind) {
    case LayerKind::Embedding:
      sums.forward = all;
      sums.input_gradient = own;
      break;
    case LayerKind::Block: sums.forward = sums.input_gradient = 2 * (all + own); break;
    case LayerKind::Head:
      sums.forward = own + sum((1 + count) * tokens * sizeof(float));
      sums.input_gradient = all;
      break;
  }
  sums.recompute = sums.forward;
  return sums;
}

}  // namespace chimera
