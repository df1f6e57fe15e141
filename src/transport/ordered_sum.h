#pragma once

// Adds gradients in the order of a binary tree, so that the bits of a sum do not depend on the number of ranks, or on
// which rank holds which part (--reduction canonical, runtime/gradient_sums.h). Transports call it.

#include <ATen/core/Tensor.h>

#include <vector>

#include "schedule/reduction_tree.h"

namespace chimera {

/// Returns the sum of all tensors in `parts`, which have the same size and type. parts[member][i] is the sum of the
/// subtree order.parts[member][i] of the tree (schedule/reduction_tree.h). The result does not depend on which member
/// holds which subtree. Overwrites the tensors; the result is one of them. Throws TransportError if `parts` and `order`
/// do not match.
[[nodiscard]] at::Tensor add_in_order(const SumOrder& order, const std::vector<std::vector<at::Tensor>>& parts);

}  // namespace chimera
