#pragma once
// Deterministic sums: parts that the members of a group hold are added in one order, whoever holds which.

#include <ATen/core/Tensor.h>

#include <vector>

#include "schedule/reduction_tree.h"

namespace chimera {

/// The sum over all parts[member][i], which are the subtrees order.parts[member][i], of one size and type. Writes into
/// the parts; the sum is one of them. Throws TransportError where parts and order do not fit each other.
[[nodiscard]] at::Tensor add_in_order(const SumOrder& order, const std::vector<std::vector<at::Tensor>>& parts);

}  // namespace chimera
