#pragma once
// A layer of a user's model: anything that maps a tensor to a tensor.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace chimera {

/// A torch::nn module as users hold it: its holder (torch::nn::Linear, torch::nn::Sequential, ...) or a shared pointer.
template <class T>
concept ModulePointer = requires(T module, const at::Tensor& tensor) {
  { module->forward(tensor) } -> std::convertible_to<at::Tensor>;
};

/// torch::nn::AnyModule.
template <class T>
concept ErasedModule = requires(T module, const at::Tensor& tensor) {
  { module.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
  { module.forward(tensor) } -> std::convertible_to<at::Tensor>;
};

/// A function without parameters of its own.
template <class T>
concept TensorMap = !ModulePointer<T> && !ErasedModule<T> && std::invocable<T&, const at::Tensor&> &&
                    std::convertible_to<std::invoke_result_t<T&, const at::Tensor&>, at::Tensor>;

/// A module that maps one tensor to one tensor, or a function that does. It must not write to its input.
class Layer {
 public:
  template <class T>
  requires ModulePointer<T> Layer(T module)  // NOLINT(google-explicit-constructor): a factory returns its module
      : module_(pointer(module)),
        forward_([held = std::move(module)](const at::Tensor& input) mutable { return held->forward(input); }) {}

  template <class T>
  requires ErasedModule<T> Layer(T module)  // NOLINT(google-explicit-constructor): likewise
      : module_(module.ptr()),
        forward_([held = std::move(module)](const at::Tensor& input) mutable { return held.forward(input); }) {}

  template <class T>
  requires TensorMap<T> &&(!std::same_as<T, Layer>)Layer(T function)  // NOLINT(google-explicit-constructor): likewise
      : forward_(std::move(function)) {}

  [[nodiscard]] at::Tensor operator()(const at::Tensor& input) const { return forward_(input); }
  /// Null for a function.
  [[nodiscard]] const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  /// The module's class, e.g. `torch::nn::LinearImpl`; `function` without one.
  [[nodiscard]] std::string name() const { return module_ ? module_->name() : "function"; }

 private:
  template <class T>
  static std::shared_ptr<torch::nn::Module> pointer(const std::shared_ptr<T>& module) {
    return module;
  }
  template <class Holder>
  static std::shared_ptr<torch::nn::Module> pointer(const Holder& module) {
    return module.ptr();
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::function<at::Tensor(const at::Tensor&)> forward_;
};

/// Makes a layer, a new one at every call: each rank calls those of its own stages, once a stage.
using LayerFactory = std::function<Layer()>;

}  // namespace chimera
