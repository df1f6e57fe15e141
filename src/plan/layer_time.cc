#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "plan/machine.h"
#include "plan/own_layers.h"

namespace chimera {
namespace {

constexpr double real(std::int64_t number) { return static_cast<double>(number); }

/// The work of one sequence.
LayerFootprint work_of(const ModelConfig& config, LayerKind kind, std::int64_t sequence) {
  return layer_footprint(config, kind, {.micro_batch_size = 1, .sequence = sequence});
}

/// Whether the sizes that this kind's work depends on agree.
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

double hidden_states(const ModelConfig& model, std::int64_t sequence) { return real(model.hidden) * real(sequence); }

/// How much one sequence's work differs, as the logarithm of a ratio; layers that differ otherwise count as farther.
double distance(const LayerTimes& layer, const ModelConfig& model, const Workload& workload) {
  constexpr double kOtherSequence = 0.01;  // breaks ties between equal work
  constexpr double kOtherSizes = 0.02;
  constexpr double kOtherFamily = 1;
  constexpr double kOtherType = 3;
  const double measured = work_of(layer.model, layer.kind, layer.sequence).forward_flops / real(layer.sequence);
  const double asked = work_of(model, layer.kind, workload.sequence).forward_flops / real(workload.sequence);
  const double ratio = measured > 0 && asked > 0 ? asked / measured : real(model.hidden) / real(layer.model.hidden);
  double sum = std::abs(std::log(ratio));
  if (layer.sequence != workload.sequence) {
    sum += kOtherSequence * (1 + std::abs(std::log(real(workload.sequence) / real(layer.sequence))));
  }
  if (!equal_sizes(layer.model, model, layer.kind)) sum += kOtherSizes;
  if (layer.model.family != model.family) sum += kOtherFamily;
  if (bytes_of(layer.dtype) != workload.compute_bytes) sum += kOtherType;
  return sum;
}

const LayerTimes& nearest_layer(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                const Workload& workload) {
  const LayerTimes* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const LayerTimes& layer : machine.layers) {
    if (layer.kind != kind) continue;
    if (const double far = distance(layer, model, workload); far < least) {
      least = far;
      best = &layer;
    }
  }
  if (best == nullptr) {
    throw ConfigError(fmt::format("machine profile '{}' has no layer of kind {}; `chimera profile` measures all three",
                                  machine.name, to_text(kind)));
  }
  return *best;
}

/// A line through two measured points, read at `size`; never below what the nearer point says of its share.
double on_line(double size, const LayerTime& a, const LayerTime& b, double LayerTime::*part) {
  const auto low = real(a.micro_batch_size);
  const auto high = real(b.micro_batch_size);
  const double value = a.*part + (b.*part - a.*part) * (size - low) / (high - low);
  if (size < low) return std::max(value, a.*part * size / low);
  return size > high ? std::max(value, b.*part) : value;
}

double at_size(const std::vector<LayerTime>& times, double size, double LayerTime::*part) {
  if (times.size() == 1) return times.front().*part * size / real(times.front().micro_batch_size);
  auto upper = std::ranges::find_if(times, [&](const LayerTime& t) { return real(t.micro_batch_size) >= size; });
  if (upper == times.end()) --upper;
  if (upper == times.begin()) ++upper;
  return on_line(size, *(upper - 1), *upper, part);
}

double spread_at(const std::vector<LayerTime>& times, double size) {
  return std::ranges::min_element(times, {},
                                  [&](const LayerTime& t) { return std::abs(real(t.micro_batch_size) - size); })
      ->spread;
}

/// What the attention of one sequence takes of the memory's time in a forward.
double attention_seconds(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                         std::int64_t sequence) {
  if (kind != LayerKind::Block || machine.score_traffic == 0) return 0;
  return machine.score_traffic * real(model.heads) * real(sequence) * real(sequence) / machine.memory_bandwidth;
}

}  // namespace

LayerTime time_at(const std::vector<LayerTime>& times, double size) {
  const auto part = [&](double LayerTime::*each) { return at_size(times, size, each); };
  return {static_cast<std::int64_t>(std::llround(size)),
          part(&LayerTime::forward),
          part(&LayerTime::input_gradient),
          part(&LayerTime::weight_gradient),
          part(&LayerTime::recompute),
          spread_at(times, size)};
}

LayerTime layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                     const Workload& workload) {
  const LayerTimes& layer = nearest_layer(machine, model, kind, workload);
  // As many tokens as are asked for: what depends on their number alone then agrees.
  const double sequences = real(workload.micro_batch_size) * real(workload.sequence) / real(layer.sequence);
  const LayerFootprint asked = work_of(model, kind, workload.sequence);
  const LayerFootprint measured = work_of(layer.model, kind, layer.sequence);
  const double wider = real(workload.compute_bytes) / real(bytes_of(layer.dtype));
  const double states = hidden_states(model, workload.sequence) / hidden_states(layer.model, layer.sequence);
  const double traffic_measured = attention_seconds(machine, layer.model, kind, layer.sequence);
  const double traffic_asked = attention_seconds(machine, model, kind, workload.sequence);
  // `moves`: 1 where the op moves attention's scores, else 0.
  const auto time = [&](double LayerTime::*part, double LayerFootprint::*work, double moves) {
    const double ratio = measured.*work > 0 && asked.*work > 0 ? asked.*work / measured.*work : states;
    const double per_token = ratio * real(layer.sequence) / real(workload.sequence);
    const double in_all = at_size(layer.times, sequences, part);
    const double in_products = std::max(0.0, in_all - moves * traffic_measured * sequences);
    return (in_products * per_token + moves * traffic_asked * real(workload.micro_batch_size)) * wider;
  };
  return {workload.micro_batch_size,
          time(&LayerTime::forward, &LayerFootprint::forward_flops, 1),
          time(&LayerTime::input_gradient, &LayerFootprint::input_gradient_flops, 1),
          time(&LayerTime::weight_gradient, &LayerFootprint::weight_gradient_flops, 0),
          time(&LayerTime::recompute, &LayerFootprint::forward_flops, 1),
          spread_at(layer.times, sequences)};
}

}  // namespace chimera
