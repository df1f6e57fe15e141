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

namespace chimera {

/// Makes a parameter with its value before the first step: contiguous, with the type and device in the options.
using InitialValue = std::function<at::Tensor(const ParameterSpec& parameter, const at::TensorOptions& options)>;

[[nodiscard]] InitialValue initial_values_of(std::uint64_t seed);

/// make_stage() (model/stage.h) with these values.
[[nodiscard]] std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers,
                                                at::ScalarType dtype, const InitialValue& value,
                                                const TiedLeaves& tied = {}, at::Device device = at::kCPU);

/// make_tied_weight() (model/tied_weight.h) with these values.
[[nodiscard]] std::unique_ptr<TiedWeight> make_tied_weight(const ModelConfig& config, const TiedUses& uses,
                                                           at::ScalarType dtype, const InitialValue& value,
                                                           at::Device device = at::kCPU);

/// Returns the type of master weights, gradients and optimizer state for hidden states of type `compute`: the wider of
/// `compute` and float32.
[[nodiscard]] inline at::ScalarType weight_type(at::ScalarType compute) {
  return c10::promoteTypes(compute, at::kFloat);
}

/// Element i (row-major) of a normal parameter is CounterRandom(seed, name).normal(i) times its standard deviation, in
/// float64, then rounded to the type in `options`.
[[nodiscard]] std::vector<Parameter> initial_values(const std::vector<ParameterSpec>& specs,
                                                    const at::TensorOptions& options, std::uint64_t seed);

}  // namespace chimera
