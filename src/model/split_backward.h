#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace chimera {

/// Returns function(input), with a backward that autograd's engine can split. `function` is any composition of
/// differentiable ops that does not write to its input. If the output depends differentiably on nothing, the input's
/// gradient is zero.
///
/// A whole backward (B) is autograd's own. After defer() of the WeightGradients queue, backward is an input-gradient
/// pass (I): it runs only the path from output to input, and keeps the gradients at nodes of this path that feed
/// parameters. The queue's run() (W) starts from those nodes. B and W give the same bits. If `input` needs no gradient,
/// I runs nothing and W everything.
///
/// Hooks inside run once, in I. A node with post hooks computes all its gradients in I, which the hooks see. A Python
/// node that feeds parameters (an autograd.Function with weights, a compiled module) also runs once, in I, because its
/// backward may free its saved tensors. `function` must not contain layers of model/linear.h, which would queue their
/// weight gradient twice.
[[nodiscard]] at::Tensor split_backward(const std::function<at::Tensor(const at::Tensor&)>& function,
                                        const at::Tensor& input);

}  // namespace chimera
