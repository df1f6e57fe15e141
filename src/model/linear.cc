#include "model/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <optional>
#include <utility>

namespace chimera {
namespace {

thread_local WeightGradients::Pointer current_queue;

}  // namespace

void WeightGradients::hand_over(std::function<void()> add) {
  if (deferred_) {
    kept_.push_back(std::move(add));
  } else {
    add();
  }
}

void WeightGradients::run() {
  for (auto& add : std::exchange(kept_, {})) {
    add();
    add = nullptr;  // frees its tensors before the next one runs
  }
}

const WeightGradients::Pointer& WeightGradients::current() { return current_queue; }

WeightGradients::Scope::Scope(Pointer queue) : before_(std::exchange(current_queue, std::move(queue))) {}

WeightGradients::Scope::~Scope() { current_queue = std::move(before_); }

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// [..., n] -> [rows, n]
at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// Computes sum += left right. If the factors are narrower than the sum, the CPU rounds the product to their type. GPUs
/// do not: their kernel accepts a float32 sum (_addmm_dtype_out_cuda in ATen/native/cuda/Blas.cpp).
void add_product(at::Tensor sum, const at::Tensor& left, const at::Tensor& right) {
  if (sum.scalar_type() == left.scalar_type()) {
    sum.addmm_(left, right);
  } else if (!sum.is_cpu()) {
    at::addmm_out(sum, sum, left, right, sum.scalar_type());
  } else {
    sum.add_(left.mm(right));
  }
}

/// Autograd computes only the input gradient; the weight gradient goes through the queue.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, WeightLayout layout) {
    context->save_for_backward({input, weight, bias.value_or(at::Tensor())});
    context->saved_data["layout"] = static_cast<std::int64_t>(layout);
    if (const auto& queue = WeightGradients::current()) context->saved_data["queue"] = at::IValue::make_capsule(queue);
    return at::linear(input, out_in({weight, {}, layout}), bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const auto layout = static_cast<WeightLayout>(context->saved_data["layout"].toInt());
    const Linear layer{saved[1], saved[2], layout};
    const at::Tensor& output_gradient = output_gradients[0];
    at::Tensor input_gradient;
    if (context->needs_input_grad(0)) input_gradient = output_gradient.matmul(out_in(layer));
    // Detached: a graph would keep the stage's input and its gradient until W.
    auto add = [layer, input = rows_of(saved[0].detach()), rows = rows_of(output_gradient)] {
      add_weight_gradient(layer, input, rows);
    };
    const auto queue = context->saved_data.find("queue");
    if (queue == context->saved_data.end()) {
      add();
    } else {
      c10::static_intrusive_pointer_cast<WeightGradients>(queue->second.toCapsule())->hand_over(std::move(add));
    }
    return {input_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor out_in(const Linear& layer) { return layer.layout == WeightLayout::OutIn ? layer.weight : layer.weight.t(); }

std::optional<at::Tensor> bias_of(const Linear& layer) {
  return layer.bias.defined() ? std::optional(layer.bias) : std::nullopt;
}

at::Tensor linear(const at::Tensor& input, const Linear& layer) {
  return LinearFunction::apply(input, layer.weight, bias_of(layer), layer.layout);
}

at::Tensor gradient_of(at::Tensor parameter) {
  if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
  return parameter.grad();
}

void add_weight_gradient(const Linear& layer, const at::Tensor& input, const at::Tensor& output_gradient,
                         const at::Tensor& factor) {
  const at::NoGradGuard no_graph;
  if (layer.weight.requires_grad()) {
    const at::Tensor gradient = gradient_of(layer.weight);
    // In a large head, the input is smaller than the output's gradient.
    const at::Tensor scaled_input = factor.defined() ? input * factor : input;
    if (layer.layout == WeightLayout::OutIn) {
      add_product(gradient, output_gradient.t(), scaled_input);
    } else {
      add_product(gradient, scaled_input.t(), output_gradient);
    }
  }
  if (layer.bias.defined() && layer.bias.requires_grad()) {
    at::Tensor gradient = gradient_of(layer.bias);
    at::Tensor sum = output_gradient.sum(0, /*keepdim=*/false, gradient.scalar_type());
    if (factor.defined()) sum.mul_(factor);
    gradient.add_(sum);
  }
}

}  // namespace chimera
