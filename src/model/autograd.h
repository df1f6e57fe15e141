#pragma once

// For sources with autograd functions: names of LibTorch, and what a forward keeps for its backward.

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <utility>

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

}  // namespace chimera
