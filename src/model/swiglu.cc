#include "model/swiglu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace chimera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& gate = saved[0];
    const at::Tensor& gradient = output_gradients[0];
    at::Tensor gate_gradient = gradient * saved[1];
    at::silu_backward_out(gate_gradient, gate_gradient, gate);
    return {gate_gradient, at::silu(gate).mul_(gradient)};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return SwigluFunction::apply(gate, up); }

}  // namespace chimera
