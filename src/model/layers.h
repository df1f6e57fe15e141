#pragma once

// Layers of a transformer as functions that do not write to their arguments, for Chimera's own models
// (transformer_stage.h), and Layer, a wrapper of a user's own module or function (module_stage.h). Letters in shapes: b
// sequences of a micro-batch, L tokens of a sequence, H hidden width, V vocabulary, F width of the feed-forward layer,
// d width of an attention head.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/scoped_value.h"
#include "model/dropout.h"
#include "model/linear.h"

namespace chimera {

/// Tensors that layers exchange. An undefined tensor is a missing value.
using TensorVector = std::vector<at::Tensor>;

// The concepts below say which modules and functions a Layer accepts.

/// What a layer may return: a tensor or a TensorVector.
template <class T>
concept LayerResult = std::convertible_to<T, at::Tensor> || std::convertible_to<T, TensorVector>;

/// A holder of a torch::nn module (torch::nn::Linear, torch::nn::Sequential, ...) or a shared pointer to it.
template <class T, class Input = at::Tensor>
concept ModulePointer = requires(T module, const Input& input) {
  { module->forward(input) } -> LayerResult;
};

/// torch::nn::AnyModule.
template <class T>
concept ErasedModule = requires(T module, const at::Tensor& tensor) {
  { module.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
  { module.forward(tensor) } -> std::convertible_to<at::Tensor>;
};

/// A module that takes a tensor or a TensorVector.
template <class T>
concept LayerModule = ModulePointer<T> || ErasedModule<T> || ModulePointer<T, TensorVector>;

/// A function (not a module) from Input to a LayerResult.
template <class T, class Input = at::Tensor>
concept LayerFunction = std::invocable<T&, const Input&> && LayerResult<std::invoke_result_t<T&, const Input&>>;

/// Returns the only tensor. Throws ConfigError unless there is exactly one.
[[nodiscard]] const at::Tensor& only_value(const TensorVector& values);

/// A module or function that takes a tensor or a TensorVector, and returns either. It must not write to its input.
class Layer {
 public:
  template <class T>
  requires(!std::same_as<T, Layer> && (LayerModule<T> || LayerFunction<T> || LayerFunction<T, TensorVector>))
      Layer(T callable)  // NOLINT(google-explicit-constructor): a factory returns its module
      : module_(pointer(callable)), forward_([held = std::move(callable)](const TensorVector& values) mutable {
          if constexpr (ModulePointer<T> || ErasedModule<T> || (!LayerModule<T> && LayerFunction<T>))
            return as_vector(call(held, only_value(values)));
          else
            return as_vector(call(held, values));
        }) {}

  [[nodiscard]] TensorVector operator()(const TensorVector& values) const { return forward_(values); }
  [[nodiscard]] at::Tensor operator()(const at::Tensor& input) const { return only_value(forward_({input})); }
  /// Null for a function.
  [[nodiscard]] const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  /// Returns the module's class, e.g. `torch::nn::LinearImpl`, or `function`.
  [[nodiscard]] std::string name() const { return module_ ? module_->name() : "function"; }

 private:
  using Forward = std::function<TensorVector(const TensorVector&)>;

  template <class T, class Input>
  static auto call(T& held, const Input& input) {
    if constexpr (ErasedModule<T>)
      return held.forward(input);
    else if constexpr (LayerModule<T>)
      return held->forward(input);
    else
      return held(input);
  }

  static TensorVector as_vector(at::Tensor value) { return {std::move(value)}; }
  static TensorVector as_vector(TensorVector values) { return values; }

  template <class T>
  static std::shared_ptr<torch::nn::Module> pointer(const T& callable) {
    if constexpr (std::convertible_to<T, std::shared_ptr<torch::nn::Module>>)
      return callable;
    else if constexpr (LayerModule<T>)
      return callable.ptr();
    else
      return nullptr;
  }

  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};

/// Function that makes a new layer at every call. Each rank calls the factories of the layers of its stages, once per
/// stage.
using LayerFactory = std::function<Layer()>;

/// Returns silu(gate) * up with silu(x) = x sigmoid(x); all [..., F]. Keeps only its two inputs for backward. Source:
/// Shazeer, "GLU Variants Improve Transformer", 2020.
[[nodiscard]] at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Does the same with gate and up joined in one tensor, [..., 2 F] -> [..., F]; the gate is first.
[[nodiscard]] at::Tensor swiglu(const at::Tensor& gate_and_up);

/// Activation checkpointing of one function: returns function(input) and keeps only the input for backward, which calls
/// `function` again. Results and gradients have the same bits as without checkpointing. `function` must be
/// deterministic and own all tensors that it needs. If the input needs no gradient, this is an ordinary call.
[[nodiscard]] at::Tensor recompute_in_backward(const std::function<at::Tensor(const at::Tensor&)>& function,
                                               const at::Tensor& input);

/// Scope in which tensors that autograd saves on this thread stay on the device, even if the stage offloads its
/// activations to host memory. If `stay` is false, it changes nothing.
class StayOnDevice : ScopedValue<bool> {
 public:
  explicit StayOnDevice(bool stay) : ScopedValue(active_, active_ || stay) {}
  [[nodiscard]] static bool is_active() { return active_; }

 private:
  static thread_local bool active_;
};

/// Value in targets for tokens that do not count in the loss.
inline constexpr std::int64_t kIgnored = -100;

/// Parameters of a layer norm.
struct LayerNorm {
  at::Tensor weight;   ///< [H]
  at::Tensor bias;     ///< [H]
  double epsilon = 0;  ///< added to the variance
};

/// Projections of multi-head attention: queries [b, L, heads * d], keys and values with the same number of heads, or
/// fewer if query heads share them.
struct QueryKeyValue {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

/// Exact, or GPT-2's tanh approximation of x * Phi(x).
enum class Gelu : std::uint8_t { Exact, Tanh };

/// Returns the rows of `table` [V, H] for `tokens` [b, L] -> [b, L, H]. Throws ConfigError if a token on the CPU is
/// outside the table.
///
/// Backward adds to the table's gradient (which may be undefined before) in the order of `tokens`. If the backward is
/// split into an input-gradient and a weight-gradient op (linear.h), the latter adds; until then, the WeightGradients
/// queue keeps the gradient of the result. Whole and split backwards give the same bits.
[[nodiscard]] at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens);

/// Adds the L rows of `table` [positions, H] from row `first` on to each sequence of `embedded` [b, L, H]. Backward
/// adds to the table's gradient as above, summed over sequences. Throws ConfigError if a sequence ends beyond the
/// table.
[[nodiscard]] at::Tensor add_positions(const at::Tensor& embedded, const at::Tensor& table, std::int64_t first = 0);

/// Returns the layer norm of `input` [..., H] over its last dimension, in the same shape.
[[nodiscard]] at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& layer);

[[nodiscard]] at::Tensor gelu(const at::Tensor& input, Gelu kind);

/// Consecutive queries that attend causally to consecutive keys of the same samples. The last of these keys are the
/// keys of the queries' own tokens.
struct AttentionPart {
  std::int64_t first_sample = 0;  ///< in the micro-batch
  std::int64_t samples = 0;
  std::int64_t first_query = 0;  ///< counted from the first query, which in a slice is not the first token
  std::int64_t queries = 0;
  std::int64_t first_key = 0;  ///< counted from the first token of the sequence
  std::int64_t keys = 0;
};
using AttentionParts = std::vector<AttentionPart>;

/// Keys that attention leaves out. At most one member is set.
struct AttentionLimits {
  at::Tensor mask = {};                              ///< document_mask(), or BERT's mask of padding
  std::shared_ptr<const AttentionParts> parts = {};  ///< document_parts(), for causal attention on the CPU
};

/// Returns causal attention [b, L, heads * d] with `heads` query heads: each token attends to itself and earlier
/// tokens. `masks` is the dropout of the attention probabilities. `limits` has no parts if dropout is active. If there
/// are more keys than queries, the queries belong to the last tokens.
[[nodiscard]] at::Tensor causal_attention(const QueryKeyValue& projections, std::int64_t heads,
                                          const Dropout& masks = {}, const AttentionLimits& limits = {});

/// Returns the limits of the queries from token `first` on to the tokens of their own documents. On a device, or if
/// attention has dropout (`dropout`), this is document_mask(). Otherwise it is parts, whose cost is the sum of the
/// documents' squared lengths, or no limit if each sample is one document. `documents` [b, L] (int64) has the document
/// number of each token. All blocks of a stage use the same limits.
[[nodiscard]] AttentionLimits document_limits(const at::Tensor& documents, at::ScalarType type, std::int64_t first,
                                              bool dropout);

/// Returns the parts of `documents` [b, L] (int64, on the CPU) with queries from token `first` on.
[[nodiscard]] AttentionParts document_parts(const at::Tensor& documents, std::int64_t first = 0);

/// Returns a mask that restricts causal attention to the token's own document. It is added to the attention scores of
/// the queries from token `first` on: [b, 1, L - first, L] of `type` (the type of the queries). It is 0 for a token and
/// earlier tokens of its document, minus infinity elsewhere. `documents` [b, L] (int64) has the document number of each
/// token.
[[nodiscard]] at::Tensor document_mask(const at::Tensor& documents, at::ScalarType type, std::int64_t first = 0);

/// Returns bidirectional attention (BERT) [b, L, H] to all tokens whose `mask` is true ([b, L] bool; undefined: all
/// true). Each sequence needs at least one true element. `masks` is the dropout of the attention probabilities.
[[nodiscard]] at::Tensor masked_attention(const QueryKeyValue& projections, const at::Tensor& mask, std::int64_t heads,
                                          const Dropout& masks = {});

/// Returns the cross entropy of `logits` [..., V] summed over all `targets` [...] that are not kIgnored, a tensor [].
/// Computes in at least float32. Throws ConfigError if a target on the CPU is outside the vocabulary.
[[nodiscard]] at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

/// Returns the indices of the elements of `targets` [n] that are not kIgnored, ascending. If the tensor is on a GPU,
/// waits for it, because their number is not known before.
[[nodiscard]] at::Tensor target_indices(const at::Tensor& targets);

/// Throws ConfigError if one of `values` is `vocabulary` or larger; `what` names the values in the message. Does
/// nothing for tensors on a GPU: the kernels check indices themselves, and a check here would wait for the GPU.
void require_below(const at::Tensor& values, std::int64_t vocabulary, const char* what);

}  // namespace chimera
