#pragma once
// The weights before the first step, the same for every partition, worker and order.

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <vector>

#include "model/stage.h"
#include "model_config/parameters.h"

namespace chimera {

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
