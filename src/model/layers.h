#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "model/dropout.h"
#include "model/linear.h"

// A layer of a user's model: anything that maps a tensor to a tensor.

// The gated activation of Llama's feed-forward layer.
// Source: Shazeer, "GLU Variants Improve Transformer", 2020.

// The layers of a transformer as free functions on tensors. None of them writes to its arguments.
// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, H hidden width, V vocabulary.

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

/// silu(gate) * up, where silu(x) = x sigmoid(x); all [..., F]. Keeps its two inputs, not silu(gate), which backward
/// makes again.
[[nodiscard]] at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// A target at which no loss is taken.
inline constexpr std::int64_t kIgnored = -100;

/// Normalises the last dimension to mean 0 and variance 1, then scales and shifts.
struct LayerNorm {
  at::Tensor weight;   ///< [H]
  at::Tensor bias;     ///< [H]
  double epsilon = 0;  ///< added to the variance
};

/// The projections of multi-head attention, before they are cut into heads: [b, L, heads * d] of queries, d wide a
/// head; keys and values of as many heads or, where groups of query heads share one, of fewer.
struct QueryKeyValue {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

/// The activation of the feed-forward layer: GPT-2 approximates x * Phi(x) by a tanh.
enum class Gelu : std::uint8_t { Exact, Tanh };

/// input [..., H] -> [..., H].
[[nodiscard]] at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& layer);

[[nodiscard]] at::Tensor gelu(const at::Tensor& input, Gelu kind);

/// Each token attends to itself and those before it, of the same document where there are several (`document_mask`, as
/// the function of that name makes it; undefined: all are of one), with `masks` on the probabilities; `heads`: of the
/// queries. Where there are more keys and values than queries, these belong to the last tokens, and all are of one
/// document. -> [b, L, heads * d].
[[nodiscard]] at::Tensor causal_attention(const QueryKeyValue& projections, std::int64_t heads,
                                          const Dropout& masks = {}, const at::Tensor& document_mask = {});

/// What is added to scores where `documents` [b, L] (int64) numbers the document of each token: 0 for a token itself
/// and those before it of its document, minus infinity elsewhere -> [b, 1, L, L] of `type`, the queries'. All blocks of
/// a stage share it, so that it is kept for the backward once.
[[nodiscard]] at::Tensor document_mask(const at::Tensor& documents, at::ScalarType type);

/// Each token attends to all tokens where `mask` ([b, L] bool; undefined: everywhere) is true. At least one token of
/// each sequence must be. -> [b, L, H].
[[nodiscard]] at::Tensor masked_attention(const QueryKeyValue& projections, const at::Tensor& mask, std::int64_t heads,
                                          const Dropout& masks = {});

/// Sum over `targets` [...] of the cross entropy of `logits` [..., V], without those that are kIgnored -> [].
/// Computed in float32 where the logits are narrower. Throws ConfigError for a target outside the vocabulary, where
/// they are on the CPU.
[[nodiscard]] at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

/// Where in `targets` [n] a loss is taken, ascending. On a GPU this waits for all that it has to do.
[[nodiscard]] at::Tensor target_places(const at::Tensor& targets);

/// Throws ConfigError where one of `values` is `vocabulary` or larger, naming it as `what`. Looks at values on the CPU
/// alone: elsewhere that would wait for all that the device has to do, and its kernels check.
void require_below(const at::Tensor& values, std::int64_t vocabulary, const char* what);

}  // namespace chimera
