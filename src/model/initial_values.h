#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/stage.h"
#include "model/tied_weight.h"
#include "model_config/parameters.h"

// Models that start from other values than those of a seed, such as the weights of a model that was trained before.

// The weights before the first step, the same for every partition, worker and order.

namespace chimera {

/// Makes a parameter with the values that it has before the first step: contiguous, of the type and on the device in
/// the options.
using FirstValue = std::function<at::Tensor(const ParameterSpec& parameter, const at::TensorOptions& options)>;

/// The values of a new model (model/initial_values.h).
[[nodiscard]] FirstValue initial_values_of(std::uint64_t seed);

/// make_stage() (model/stage.h) with these values.
[[nodiscard]] std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers,
                                                at::ScalarType dtype, const FirstValue& value,
                                                const TiedLeaves& tied = {}, at::Device device = at::kCPU);

/// make_tied_weight() (model/tied_weight.h) with these values.
[[nodiscard]] std::unique_ptr<TiedWeight> make_tied_weight(const ModelConfig& config, const TiedUses& uses,
                                                           at::ScalarType dtype, const FirstValue& value,
                                                           at::Device device = at::kCPU);

/// The type of master weights, gradients and optimizer state, where hidden states are `compute`: the same type, or
/// float32 where that is narrower (mixed precision).
[[nodiscard]] inline at::ScalarType weight_type(at::ScalarType compute) {
  return c10::promoteTypes(compute, at::kFloat);
}

/// Allocates and fills the parameters. Element i (row-major) of a normal one is CounterRandom(seed, name).normal(i)
/// times its standard deviation, in float64, then rounded to the type in `options`, which also name the device.
[[nodiscard]] std::vector<Parameter> initial_values(const std::vector<ParameterSpec>& specs,
                                                    const at::TensorOptions& options, std::uint64_t seed);

}  // namespace chimera
