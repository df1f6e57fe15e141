#pragma once
// Compares a model's tensors on a device with the CPU's, to find the first op that differs.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/make_stage.h"
#include "model_config/config.h"

namespace chimera {

/// A tensor that the CPU and a device have computed from equal inputs.
struct DeviceDifference {
  std::string name;    ///< "block 3: output", "block 3: gradient of h.3.mlp.c_fc.bias"
  double largest = 0;  ///< largest difference of two elements; infinite for NaN
  double scale = 0;    ///< largest element on the CPU; of a gradient, at least 1 % of the layer's largest gradient
  [[nodiscard]] double relative() const { return largest > 0 ? largest / scale : 0; }
};

/// Returns embedding, blocks, head. Equal seeds give equal parameters on every device. The model must not be tied.
[[nodiscard]] std::vector<std::unique_ptr<Stage>> make_single_layers(const ModelConfig& config, at::ScalarType dtype,
                                                                     std::uint64_t seed, at::Device device);

/// Runs forward and backward of a micro-batch, given on the CPU. Returns the outputs, then, from the head down, the
/// gradients of each layer's parameters and input. On the device each layer takes the CPU's inputs as `dtype`; the
/// CPU's layers compute in float32 if that is a smaller type, because the CPU adds gradients in it.
[[nodiscard]] std::vector<DeviceDifference> compare_layers(std::span<const std::unique_ptr<Stage>> on_cpu,
                                                           std::span<const std::unique_ptr<Stage>> on_device,
                                                           const MicroBatch& batch, at::ScalarType dtype,
                                                           at::Device device);

/// Returns the type of the CPU's layers for compare_layers(): float32 in place of bfloat16.
[[nodiscard]] at::ScalarType reference_type(at::ScalarType dtype);

/// Returns the first with a relative() above `tolerance`, or null.
[[nodiscard]] const DeviceDifference* first_different(std::span<const DeviceDifference> tensors, double tolerance);

/// Returns the relative difference that other orders of sums and roundings explain; hidden states have type `dtype`.
[[nodiscard]] double rounding_tolerance(at::ScalarType dtype);

}  // namespace chimera
