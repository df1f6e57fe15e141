#pragma once

// Splits the backward of any composition of differentiable ops into an input-gradient op (I), which the previous stage
// waits for, and a weight-gradient op (W), which may run later. It serves the modules of users (module_stage.h); the
// layers of GPT-2, BERT and Llama split their backward themselves (linear.h). For functions f1, f2, f3 with weights w1,
// w2, w3:
//
//   output <- f3 <- f2 <- f1 <- input      op I: runs this path, keeps the gradients that arrive at f3, f2, f1
//             |     |     |
//             w3    w2    w1               op W: starts from these gradients, computes the gradients of parameters

#include <ATen/core/Tensor.h>

#include <functional>

namespace chimera {

/// Returns function(input), with a backward that can be split. `function` is any composition of differentiable ops that
/// does not write to its input. If the output depends on no tensor that requires a gradient, the input's gradient is
/// zero.
///
/// By default, backward is a whole backward, as autograd runs it. The forward keeps the thread's current
/// WeightGradients, a queue of work for the weight-gradient op (model/linear.h). If the caller has called defer() on
/// this queue before the backward, the backward is an input-gradient op: it runs only the path from output to input,
/// and keeps the gradients that arrive at nodes of this path that use parameters. Later, run() of the queue is the
/// weight-gradient op, which starts from those nodes. Both ways give the same bits. If `input` needs no gradient, the
/// input-gradient op runs nothing, and the weight-gradient op runs everything.
///
/// Hooks of autograd nodes in `function` run once, in the input-gradient op. Two kinds of nodes compute all their
/// gradients there, also gradients of parameters: nodes with post hooks, because the hooks see the gradients, and
/// Python nodes that use parameters (an autograd.Function with weights, a compiled module), because their backward may
/// free saved tensors. `function` must not contain layers of model/linear.h, which would queue their weight gradient
/// twice.
[[nodiscard]] at::Tensor split_backward(const std::function<at::Tensor(const at::Tensor&)>& function,
                                        const at::Tensor& input);

}  // namespace chimera
