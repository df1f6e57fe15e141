#pragma once

// Splits the backward of any composition of differentiable ops into an input-gradient op (I) and a weight-gradient op
// (W), for the modules of users (module_stage.h). The layers of GPT-2, BERT and Llama do this themselves (linear.h).
//
//   output <- f3 <- f2 <- f1 <- input      op I: runs this path, keeps the gradients that arrive at f3, f2, f1
//             |     |     |
//             w3    w2    w1               op W: starts from these gradients, computes those of the parameters

#include <ATen/core/Tensor.h>

#include <functional>

namespace chimera {

/// Returns function(input), with a backward that autograd's engine can split. `function` is any composition of
/// differentiable ops that does not write to its input. If the output depends differentiably on nothing, the input's
/// gradient is zero.
///
/// A whole backward is autograd's own. After defer() of the WeightGradients queue, backward is an input-gradient op: it
/// runs only the path from output to input, and keeps the gradients at nodes of this path that feed parameters. The
/// queue's run(), the weight-gradient op, starts from those nodes. Both ways give the same bits. If `input` needs no
/// gradient, the input-gradient op runs nothing, and the weight-gradient op runs everything.
///
/// Hooks inside run once, in the input-gradient op. So do all gradients of a node with post hooks, which the hooks see,
/// and of a Python node that feeds parameters (an autograd.Function with weights, a compiled module), because its
/// backward may free its saved tensors. `function` must not contain layers of model/linear.h, which would queue their
/// weight gradient twice.
[[nodiscard]] at::Tensor split_backward(const std::function<at::Tensor(const at::Tensor&)>& function,
                                        const at::Tensor& input);

}  // namespace chimera
