#pragma once
// Split backward of any function, through autograd's engine.

#include <ATen/core/Tensor.h>

#include <functional>

namespace chimera {

/// Returns function(input), where `input` is a tensor that autograd may know and `function` any composition of
/// differentiable ops that does not write to it. Where grad mode is off it does nothing else.
///
/// A whole backward (B) is autograd's own. Under a WeightGradients queue that defers, backward is an I: it runs the
/// path from output to input alone, keeps the gradients that arrive at the nodes of this path which feed parameters,
/// and hands the rest to the queue; run(), the W, starts from those nodes and adds to the parameters' gradients. The
/// same kernels run in the same order for each parameter, hence the same bits. Where `input` needs no gradient (the
/// first stage) I runs nothing and W everything.
///
/// *Memory.* Between I and W the graph stays: the tensors that the nodes with parameters saved, and the gradients
/// that arrived there. Nodes on the path without parameters (activation functions) are freed by I. So it is more than
/// what chimera::linear() keeps, and at most the stage's activations, which is what the simulator counts until W.
///
/// Hooks on tensors within run once, in I. A node of Python that feeds parameters (an autograd.Function with weights, a
/// compiled module) runs once too, whole, in I, and W adds what it gave: its backward may free what it saved.
/// A layer that queues its weight gradient itself (model/linear.h) would be asked for it twice: use none.
/// Throws ConfigError where the output does not depend, differentiably, on the input or any parameter.
[[nodiscard]] at::Tensor split_backward(const std::function<at::Tensor(const at::Tensor&)>& function,
                                        const at::Tensor& input);

}  // namespace chimera
