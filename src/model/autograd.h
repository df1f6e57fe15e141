#pragma once

// For sources with autograd functions: names of LibTorch, and what a forward keeps for its backward.

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <utility>
#include <vector>

#include "model/linear.h"

namespace chimera {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A value of any type, as an object that autograd can save.
template <class Value>
struct HeldValue : torch::CustomClassHolder {
  explicit HeldValue(Value held) : value(std::move(held)) {}
  Value value;
};

/// Keeps a value of any type for held() in the backward.
template <class Value>
void hold(AutogradContext* context, const char* name, Value value) {
  context->saved_data[name] = at::IValue::make_capsule(c10::make_intrusive<HeldValue<Value>>(std::move(value)));
}
/// Returns the value of hold() with this name; it belongs to the context.
template <class Value>
[[nodiscard]] Value& held(AutogradContext* context, const char* name) {
  return c10::static_intrusive_pointer_cast<HeldValue<Value>>(context->saved_data[name].toCapsule())->value;
}

/// Saves parameters, and the thread's queue of weight gradients, in the context of a layer's forward, so that backward
/// can add to the parameters' gradients through the queue. (The tensors that save_for_backward() gives back may be
/// copies without gradients.)
inline void save_leaves(AutogradContext* context, std::vector<at::Tensor> leaves) {
  // Not save_for_backward(): it may return new tensors, to which no gradient is attached.
  context->saved_data["leaves"] = std::move(leaves);
  hold(context, "queue", WeightGradients::current());
}
[[nodiscard]] inline std::vector<at::Tensor> saved_leaves(AutogradContext* context) {
  return context->saved_data["leaves"].toTensorVector();
}
[[nodiscard]] inline WeightGradients::Pointer saved_queue(AutogradContext* context) {
  return held<WeightGradients::Pointer>(context, "queue");
}

}  // namespace chimera
