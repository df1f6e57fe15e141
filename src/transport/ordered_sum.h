#pragma once

// Adds gradients in the order of a tree, so that the bits of a sum do not depend on the number of ranks or on who holds
// which part.

#include <ATen/core/Tensor.h>

#include <vector>

#include "schedule/reduction_tree.h"

namespace chimera {

/// Returns the sum of all parts[member][i], the sums of subtrees order.parts[member][i]. It does not depend on which
/// member holds which part. All have the same size and type. Overwrites the parts; the result is one of them. Throws
/// TransportError if parts and order do not match.
[[nodiscard]] at::Tensor add_in_order(const SumOrder& order, const std::vector<std::vector<at::Tensor>>& parts);

}  // namespace chimera
