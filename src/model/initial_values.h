#pragma once
// The weights before the first step, the same for every partition, worker and order.

#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "model/stage.h"

namespace chimera {

/// Allocates and fills the parameters. Element i (row-major) of a normal one is CounterRandom(seed, name).normal(i)
/// times its standard deviation, in float64, then rounded to the type in `options`, which also name the device.
[[nodiscard]] std::vector<Parameter> initial_values(const std::vector<ParameterSpec>& specs,
                                                    const at::TensorOptions& options, std::uint64_t seed);

}  // namespace chimera
