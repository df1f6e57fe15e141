#pragma once
// One number that says whether two runs have the same weights, bit by bit.

#include <string>
#include <vector>

#include "model/parameter_group.h"
#include "transport/transport.h"

namespace chimera {

/// XXH3 (64 bits, as 16 hexadecimal digits) over the hashes of all parameters in the order of `names`, which are those
/// of the model. `own`: those for whose parameters this rank answers, each of the model on one rank. All ranks call it.
[[nodiscard]] std::string parameters_hash(const std::vector<std::string>& names,
                                          const std::vector<const ParameterGroup*>& own, Transport& transport);

}  // namespace chimera
