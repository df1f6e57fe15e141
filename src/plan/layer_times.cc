#include "plan/layer_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reject.h"
#include "model_config/footprint.h"
#include "plan/device_model.h"

// A profile has times of a few layers at a few micro-batch sizes. layer_time() finds the measured layer that is most
// alike, interpolates at the same number of tokens, and scales by what a device model says of both shapes, or else by
// the ratio of FLOPs per token. Traffic of attention scores grows with the square of the sequence and not with FLOPs,
// so without a device model it is taken out before the scaling and added for the new length.

namespace chimera {
namespace {

constexpr double as_real(std::int64_t number) { return static_cast<double>(number); }

/// Returns the FLOPs of the kernels that the profile measured, which may score all tokens at once.
LayerFootprint work_of(const MachineProfile& machine, const ModelConfig& config, LayerKind kind,
                       std::int64_t sequence) {
  LayerFootprint work = layer_footprint(config, kind, {.micro_batch_size = 1, .sequence = sequence});
  if (kind != LayerKind::Head || !machine.whole_head) return work;
  const double width = as_real(config.hidden);
  const bool transforms = config.family == Family::Bert;  // tokens before the logits, and the first token's sentence
  work.forward_flops = 2 * as_real(sequence) * width * (as_real(config.vocabulary) + (transforms ? width : 0)) +
                       (transforms ? 2 * width * (width + 2) : 0);
  work.input_gradient_flops = work.weight_gradient_flops = work.forward_flops;
  return work;
}

/// Compares only the sizes that the kind's work depends on.
bool equal_sizes(const ModelConfig& a, const ModelConfig& b, LayerKind kind) {
  if (a.family != b.family || a.hidden != b.hidden) return false;
  switch (kind) {
    case LayerKind::Embedding: return a.vocabulary == b.vocabulary && a.positions == b.positions;
    case LayerKind::Block:
      return a.heads == b.heads && a.feed_forward == b.feed_forward && key_value_heads_of(a) == key_value_heads_of(b) &&
             head_size_of(a) == head_size_of(b) && a.attention_bias == b.attention_bias &&
             a.feed_forward_bias == b.feed_forward_bias && a.query_key_norm == b.query_key_norm;
    case LayerKind::Head: return a.vocabulary == b.vocabulary;
  }
  return false;
}

double hidden_states(const ModelConfig& model, std::int64_t sequence) {
  return as_real(model.hidden) * as_real(sequence);
}

/// Returns the absolute logarithm of the work ratio, plus penalties for other differences.
double distance(const MachineProfile& machine, const LayerTimes& layer, const ModelConfig& model,
                const Workload& workload) {
  constexpr double kOtherSequence = 0.01;  // breaks ties between equal work
  constexpr double kOtherSizes = 0.02;
  constexpr double kOtherFamily = 1;
  constexpr double kOtherType = 3;
  const auto per_token = [&](const ModelConfig& config, std::int64_t sequence) {
    return work_of(machine, config, layer.kind, sequence).forward_flops / as_real(sequence);
  };
  const double measured = per_token(layer.model, layer.sequence);
  const double asked = per_token(model, workload.sequence);
  // The embedding has no FLOPs; its work is the width of its rows.
  const double ratio =
      measured > 0 && asked > 0 ? asked / measured : as_real(model.hidden) / as_real(layer.model.hidden);
  double sum = std::abs(std::log(ratio));
  if (layer.sequence != workload.sequence)
    sum += kOtherSequence * (1 + std::abs(std::log(as_real(workload.sequence) / as_real(layer.sequence))));
  // The penalties order the differences that work does not show: another type of numbers is the worst.
  if (!equal_sizes(layer.model, model, layer.kind)) sum += kOtherSizes;
  if (layer.model.family != model.family) sum += kOtherFamily;
  if (bytes_of(layer.dtype) != workload.compute_bytes) sum += kOtherType;
  return sum;
}

struct NearestLayer {
  const LayerTimes* layer = nullptr;  // null: the profile has none
  double distance = std::numeric_limits<double>::infinity();
};

NearestLayer find_nearest(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                          const Workload& workload, std::int64_t tensor_parallel) {
  NearestLayer nearest;
  for (const LayerTimes& layer : machine.layers) {
    if (layer.kind != kind || layer.tensor_parallel != tensor_parallel) continue;
    if (const double far = distance(machine, layer, model, workload); far < nearest.distance) nearest = {&layer, far};
  }
  return nearest;
}

const LayerTimes& nearest_layer(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                const Workload& workload, std::int64_t tensor_parallel = 1) {
  const LayerTimes* const found = find_nearest(machine, model, kind, workload, tensor_parallel).layer;
  if (found == nullptr) {
    reject("machine profile '{}' has no layer of kind {}; `chimera profile` measures all three", machine.name,
           to_text(kind));
  }
  return *found;
}

/// Limits the extrapolation: at least proportional below `a`, at least b's value above `b`.
double on_line(double size, const LayerTime& a, const LayerTime& b, double LayerTime::*part) {
  const auto low = as_real(a.micro_batch_size);
  const auto high = as_real(b.micro_batch_size);
  const double value = a.*part + (b.*part - a.*part) * (size - low) / (high - low);
  if (size < low) return std::max(value, a.*part * size / low);
  return size > high ? std::max(value, b.*part) : value;
}

double at_size(const std::vector<LayerTime>& times, double size, double LayerTime::*part) {
  if (times.size() == 1) return times.front().*part * size / as_real(times.front().micro_batch_size);
  auto upper = std::ranges::find_if(times, [&](const LayerTime& t) { return as_real(t.micro_batch_size) >= size; });
  // Outside of the measured sizes, the line through the two nearest is continued (on_line()).
  if (upper == times.end()) --upper;
  if (upper == times.begin()) ++upper;
  return on_line(size, *(upper - 1), *upper, part);
}

double spread_at(const std::vector<LayerTime>& times, double size) {
  return std::ranges::min_element(times, {},
                                  [&](const LayerTime& t) { return std::abs(as_real(t.micro_batch_size) - size); })
      ->spread;
}

/// Returns the time that attention scores take to move through memory, in one pass of a sequence.
double attention_seconds(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                         std::int64_t sequence) {
  if (kind != LayerKind::Block || machine.score_traffic == 0) return 0;
  return machine.score_traffic * as_real(model.heads) * as_real(sequence) * as_real(sequence) /
         machine.memory_bandwidth;
}

LayerTime as_layer_time(const DeviceTime& time, const Workload& workload) {
  const double forward = time.forward.all();
  return {workload.micro_batch_size, forward, time.input_gradient.all(), time.weight_gradient.all(), forward};
}

/// Scales the times of the nearest measured layer, at about as many tokens, by the ratios of the DeviceModel.
LayerTime scaled_by_device(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                           const Workload& workload, std::int64_t tensor_parallel) {
  const bool has_split = has_layer_as_near(machine, model, kind, workload, tensor_parallel);
  const LayerTimes& layer = nearest_layer(machine, model, kind, workload, has_split ? tensor_parallel : 1);
  const std::int64_t tokens = workload.micro_batch_size * workload.sequence / workload.slices;
  const Workload measured{.micro_batch_size = std::max<std::int64_t>(1, tokens / layer.sequence),
                          .sequence = layer.sequence,
                          .compute_bytes = bytes_of(layer.dtype)};
  LayerTime time = interpolate_time(layer.times, as_real(measured.micro_batch_size));
  const LayerTime from =
      as_layer_time(device_time(machine, layer.model, kind, measured, layer.tensor_parallel), measured);
  const LayerTime to = as_layer_time(device_time(machine, model, kind, workload, tensor_parallel), workload);
  for (const auto& number : kLayerTimeNumbers)
    if (from.*number.value > 0) time.*number.value *= to.*number.value / from.*number.value;
  time.micro_batch_size = workload.micro_batch_size;
  return time;
}

/// T workers beyond one node all-reduce in rings, one for each device of a node.
double tensor_sum_seconds(const MachineProfile& machine, double bytes, std::int64_t tensor_parallel) {
  if (tensor_parallel <= machine.workers_per_node)
    return sum_seconds(machine, machine.all_reduce.within_node, tensor_parallel, bytes);
  // On CPUs, the ranks of a node share one connection.
  const std::int64_t near = machine.cores == 0 ? machine.workers_per_node : 1;
  return sum_seconds(machine, link_of_rings(machine, near), tensor_parallel, bytes);
}

}  // namespace

LayerTime interpolate_time(const std::vector<LayerTime>& times, double size) {
  LayerTime result{.micro_batch_size = static_cast<std::int64_t>(std::llround(size))};
  for (const auto& number : kLayerTimeNumbers) result.*number.value = at_size(times, size, number.value);
  result.spread = spread_at(times, size);
  return result;
}

bool has_layer_as_near(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                       const Workload& workload, std::int64_t tensor_parallel) {
  const NearestLayer split = find_nearest(machine, model, kind, workload, tensor_parallel);
  return split.layer != nullptr && split.distance <= find_nearest(machine, model, kind, workload, 1).distance;
}

LayerTime layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind, const Workload& workload,
                     std::int64_t tensor_parallel) {
  if (machine.has_device() && machine.layers.empty())
    return as_layer_time(device_time(machine, model, kind, workload, tensor_parallel), workload);
  if (machine.has_device()) return scaled_by_device(machine, model, kind, workload, tensor_parallel);
  const LayerTimes& layer = nearest_layer(machine, model, kind, workload, tensor_parallel);
  const double slices = as_real(workload.slices);
  // Same number of tokens, because some costs depend only on it
  const double sequences =
      as_real(workload.micro_batch_size) * as_real(workload.sequence) / as_real(layer.sequence) / slices;
  const LayerFootprint asked = work_of(machine, model, kind, workload.sequence);
  const LayerFootprint measured = work_of(machine, layer.model, kind, layer.sequence);
  // Another type moves more or fewer bytes, and takes its products in about the same proportion.
  const double wider = as_real(workload.compute_bytes) / as_real(bytes_of(layer.dtype));
  const double states = hidden_states(model, workload.sequence) / hidden_states(layer.model, layer.sequence);
  const double traffic_measured = attention_seconds(machine, layer.model, kind, layer.sequence);
  const double traffic_asked = attention_seconds(machine, model, kind, workload.sequence);
  // `moves` is 1 if the op accesses attention scores, else 0.
  const auto time = [&](double LayerTime::*part, double LayerFootprint::*work, double moves) {
    const double ratio = measured.*work > 0 && asked.*work > 0 ? asked.*work / measured.*work : states;
    const double per_token = ratio * as_real(layer.sequence) / as_real(workload.sequence);
    const double in_all = slices * at_size(layer.times, sequences, part);
    const double in_products = std::max(0.0, in_all - moves * traffic_measured * sequences * slices);
    const double seconds =
        (in_products * per_token + moves * traffic_asked * as_real(workload.micro_batch_size)) * wider;
    // The host must launch the kernels of a block for each slice, however small they are.
    return kind == LayerKind::Block ? std::max(seconds, slices * machine.block_launch) : seconds;
  };
  return {workload.micro_batch_size,
          time(&LayerTime::forward, &LayerFootprint::forward_flops, 1),
          time(&LayerTime::input_gradient, &LayerFootprint::input_gradient_flops, 1),
          time(&LayerTime::weight_gradient, &LayerFootprint::weight_gradient_flops, 0),
          time(&LayerTime::recompute, &LayerFootprint::forward_flops, 1),
          spread_at(layer.times, sequences)};
}

double cheap_bytes(const ModelConfig& model, const Workload& workload) {
  // Each norm reads and writes hidden states; the activation function reads its inputs and writes its output.
  const double inner = as_real(model.feed_forward * (model.family == Family::Llama ? 3 : 2));
  const double norms = as_real(model.hidden * (is_causal(model.family) ? 4 : 2));
  return as_real(workload.micro_batch_size * workload.sequence * workload.compute_bytes) * (norms + inner) /
         as_real(workload.tensor_parallel);
}

double recompute_seconds(const MachineProfile& machine, const ModelConfig& model, const Workload& workload,
                         RecomputeLevel level, double whole) {
  switch (level) {
    case RecomputeLevel::None: return 0;
    case RecomputeLevel::Cheap: {
      const double bytes = cheap_bytes(model, workload);
      if (machine.memory_bandwidth > 0) return bytes * machine.fused_part() / machine.memory_bandwidth;
      const double flops = block_flops(model, workload).all / as_real(workload.tensor_parallel);
      return std::min(whole, whole * kFlopsPerByteOfCpu * bytes / flops);
    }
    case RecomputeLevel::Attention: {
      // The second run takes the traffic as a whole, and of the rest the part of its FLOPs.
      const double traffic = std::min(whole, attention_seconds(machine, model, LayerKind::Block, workload.sequence) *
                                                 as_real(workload.micro_batch_size));
      const BlockFlops flops = block_flops(model, {.micro_batch_size = 1, .sequence = workload.sequence});
      return traffic + flops.attention_layer / flops.all * (whole - traffic);
    }
    case RecomputeLevel::Full: break;
  }
  return whole;
}

double attention_time_share(const MachineProfile& machine, const ModelConfig& model, const Workload& workload) {
  if (machine.has_device()) {
    Workload whole = workload;
    whole.slices = 1;
    const KernelSeconds all = kernel_seconds(machine, model, whole, 1);
    return all.attention / all.all();
  }
  const LayerTime block = layer_time(machine, model, LayerKind::Block, workload);
  const LayerFootprint work = layer_footprint(model, LayerKind::Block, workload);
  const LayerTimes& measured = nearest_layer(machine, model, LayerKind::Block, workload);
  const double flops = block_flops(model, workload).attention;
  const double traffic = attention_seconds(machine, model, LayerKind::Block, workload.sequence) *
                         as_real(workload.micro_batch_size) * as_real(workload.compute_bytes) /
                         as_real(bytes_of(measured.dtype));
  const auto of_attention = [&](double all_seconds, double share_of_flops) {
    const double moving = std::min(traffic, all_seconds);
    return moving + (all_seconds - moving) * share_of_flops;
  };
  // The input gradient takes two products for each of the forward.
  const double attention = of_attention(block.forward, flops / work.forward_flops) +
                           of_attention(block.input_gradient, 2 * flops / work.input_gradient_flops);
  const double others = layer_time(machine, model, LayerKind::Embedding, workload).whole() +
                        layer_time(machine, model, LayerKind::Head, workload).whole();
  const double all = as_real(model.layers) * block.whole() + others;
  return all > 0 ? as_real(model.layers) * attention / all : 0;
}

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
