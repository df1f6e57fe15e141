#include "plan/device_model.h"

#include <algorithm>

#include "model_config/footprint.h"

// Times of ops on a GPU that was not measured layer by layer: a product takes its FLOPs at the peak of the device,
// reduced by its size; attention takes its own share of the peak; element-wise kernels take their bytes at the memory
// bandwidth. The factors of bytes count reads and writes of what src/model does: 3 for a forward, 4 for an input
// gradient, 1 for a weight gradient, times the activations of the layer.

namespace chimera {
namespace {

constexpr double real(std::int64_t number) { return static_cast<double>(number); }

/// Returns FLOP/s of a worker. Float64 without a number takes half the rate of float32.
double peak_of(const MachineProfile& machine, std::int64_t compute_bytes) {
  const auto known = [&](DataType type) {
    const auto found = machine.matrix_flops.find(type);
    return found == machine.matrix_flops.end() ? 0 : found->second;
  };
  if (compute_bytes == 2) return known(DataType::BFloat16);
  const double exact = compute_bytes == 8 ? known(DataType::Float64) : 0;
  // Half the rate of float32 for 8 bytes, the same for 4.
  return exact > 0 ? exact : known(DataType::Float32) * 4 / real(compute_bytes);
}

class Device {
 public:
  Device(const MachineProfile& machine, const ModelConfig& model, const Workload& workload, std::int64_t ranks)
      : machine_(machine),
        model_(model),
        workload_(workload),
        ranks_(real(ranks)),
        slices_(real(workload.slices)),
        tokens_(real(workload.micro_batch_size * workload.sequence)),
        peak_(peak_of(machine, workload.compute_bytes)) {
    workload_.slices = 1;
    workload_.tensor_parallel = ranks;
  }

  [[nodiscard]] DeviceTime block() const {
    const double width = real(model_.hidden);
    const double heads = real(model_.heads * head_size_of(model_)) / ranks_;
    const double keys = real(key_value_heads_of(model_) * head_size_of(model_)) / ranks_;
    const double inner = real(model_.feed_forward) / ranks_;
    const bool gated = model_.family == Family::Llama;
    const double products = product(heads + 2 * keys, width) + product(width, heads) +
                            product(gated ? 2 * inner : inner, width) + product(width, inner);
    // Kernels skip the hidden half of causal attention.
    const double scores = block_flops(model_, workload_).attention / ranks_ * (is_causal(model_.family) ? 0.5 : 1);
    const double attention = scores / (peak_ * machine_.attention_share());
    const double kept = layer_footprint(model_, LayerKind::Block, workload_).activations;
    // The backward of flash attention has 5 products for 2 of the forward.
    return {with_launches({products, attention, moved(3 * kept)}),
            with_launches({products, 2.5 * attention, moved(4 * kept)}), with_launches({products, 0, moved(kept)})};
  }

  [[nodiscard]] DeviceTime head() const {
    const LayerFootprint work = layer_footprint(model_, LayerKind::Head, workload_);
    const double logits = tokens_ * real(model_.vocabulary) / ranks_;
    const double of_flop =
        product(real(model_.vocabulary) / ranks_, real(model_.hidden)) / (2 * logits * real(model_.hidden)) / ranks_;
    return {{work.forward_flops * of_flop, 0, moved(22 * logits)},
            {work.input_gradient_flops * of_flop},
            {work.weight_gradient_flops * of_flop, 0, moved(8 * logits)}};
  }

  [[nodiscard]] DeviceTime embedding() const {
    const double states = tokens_ * real(model_.hidden * workload_.compute_bytes);
    return {{.bytes = 8 * states / machine_.memory_bandwidth}, {}, {.bytes = 4 * states / machine_.memory_bandwidth}};
  }

 private:
  /// Returns the seconds of a product of all tokens with a matrix of n x k.
  [[nodiscard]] double product(double n, double k) const {
    // The smaller a dimension, the more of a tile or of the first and last wave of tiles is wasted.
    const double slower = 1 + machine_.device.product_size * (slices_ / tokens_ + 1 / n + 1 / k);
    return 2 * tokens_ * n * k / (peak_ * machine_.device.products) * slower;
  }

  [[nodiscard]] double moved(double bytes) const { return bytes * machine_.fused_part() / machine_.memory_bandwidth; }

  [[nodiscard]] KernelSeconds with_launches(KernelSeconds op) const {
    // The host launches while the device computes; only what it takes longer counts.
    op.launches = std::max(0.0, slices_ * machine_.block_launch * machine_.fused_part() - op.all());
    return op;
  }

  const MachineProfile& machine_;
  const ModelConfig& model_;
  Workload workload_;  // whole sequences on one of the ranks
  double ranks_;
  double slices_;
  double tokens_;
  double peak_;
};

}  // namespace

KernelSeconds& KernelSeconds::operator+=(const KernelSeconds& other) {
  for (const auto part :
       {&KernelSeconds::products, &KernelSeconds::attention, &KernelSeconds::bytes, &KernelSeconds::launches})
    this->*part += other.*part;
  return *this;
}

DeviceTime device_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                       const Workload& workload, std::int64_t tensor_parallel) {
  const Device device(machine, model, workload, tensor_parallel);
  switch (kind) {
    case LayerKind::Embedding: return device.embedding();
    case LayerKind::Block: return device.block();
    case LayerKind::Head: return device.head();
  }
  return {};
}

KernelSeconds kernel_seconds(const MachineProfile& machine, const ModelConfig& model, const Workload& workload,
                             std::int64_t tensor_parallel) {
  KernelSeconds all;
  for (int kind = 0; kind < kLayerKinds; ++kind) {
    const auto layer = static_cast<LayerKind>(kind);
    const DeviceTime time = device_time(machine, model, layer, workload, tensor_parallel);
    for (std::int64_t i = 0; i < (layer == LayerKind::Block ? model.layers : 1); ++i)
      for (const KernelSeconds& op : {time.forward, time.input_gradient, time.weight_gradient}) all += op;
  }
  return all;
}

}  // namespace chimera
