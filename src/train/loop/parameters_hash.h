#pragma once

// A hash of all weights in each step of a canonical run, by which runs of different layouts are compared.

#include <string>
#include <vector>

#include "model/parameter_group.h"
#include "transport/transport.h"

namespace chimera {

/// Returns XXH3 (16 hexadecimal digits) over the hashes of all parameters in the order of `names`. `own` must cover
/// each parameter on exactly one rank. All ranks call it. Weights are copied to the host, because equal weights must
/// have the same hash on CPU and device. Notes progress after each parameter.
[[nodiscard]] std::string parameters_hash(const std::vector<std::string>& names,
                                          const std::vector<const ParameterGroup*>& own, Transport& transport);

}  // namespace chimera
