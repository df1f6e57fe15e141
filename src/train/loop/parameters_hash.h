#pragma once

#include <string>
#include <vector>

#include "model/parameter_group.h"
#include "transport/transport.h"

namespace chimera {

/// Returns a hash to compare the weights of runs bit by bit: XXH3 (64 bits, as 16 hexadecimal digits) over the hashes
/// of all parameters in the order of `names`. `own` must cover each parameter on exactly one rank. All ranks call it.
/// Equal weights have the same hash on the CPU and on a device, which therefore copies them to the host. Notes progress
/// after each parameter.
[[nodiscard]] std::string parameters_hash(const std::vector<std::string>& names,
                                          const std::vector<const ParameterGroup*>& own, Transport& transport);

}  // namespace chimera
