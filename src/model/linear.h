#pragma once

// Linear layers whose weight gradient can be computed later. Zero-bubble schedules split a backward pass (op B) into an
// input-gradient op (I), which the previous stage waits for, and a weight-gradient op (W), which may run later. A
// WeightGradients queue per stage and micro-batch holds the work of W:
//
//   forward under a WeightGradients::Scope -> the layer saves the queue
//   backward: input gradient at once; weight gradient -> queue -> at once (B), or kept until run() (W)
//
// All layers that implement their own backward (embeddings, norms, linear_cross_entropy.h) pass their weight gradients
// through this queue; for other modules, split_backward.h does it. B gives the same bits as I and W.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/scoped_value.h"
#include "model/autograd.h"

namespace chimera {

/// Queue of the weight gradients that a micro-batch's backward still has to compute, on one stage.
class WeightGradients : public torch::CustomClassHolder {
 public:
  using Pointer = c10::intrusive_ptr<WeightGradients>;

  /// Makes submit() store functions for run(). Called before the backward of op I.
  void defer() { deferred_ = true; }
  [[nodiscard]] bool is_deferred() const { return deferred_; }
  /// Runs `add`, or stores it after defer(). `add` must own the tensors it needs.
  void submit(std::function<void()> add);
  /// Runs and frees the stored functions in order. Called by op W.
  void run();
  /// Adds `term`, possibly of a narrower type, to `sum`: on the CPU at once; on a GPU at the end of the running
  /// backward or run(), where one or two kernels add many small terms. Call it from a function given to submit().
  void add(const at::Tensor& sum, const at::Tensor& term);
  /// Returns the number of stored functions.
  [[nodiscard]] std::size_t num_deferred() const { return kept_.size(); }

  /// Returns the queue of the innermost Scope on this thread; without a Scope, a queue that never defers.
  [[nodiscard]] static const Pointer& current();

  /// Makes `queue` the current queue of this thread.
  struct Scope : ScopedValue<Pointer> {
    explicit Scope(Pointer queue);
  };

 private:
  void add_terms();

  bool deferred_ = false;
  std::vector<std::function<void()>> kept_;
  std::vector<at::Tensor> sums_;   // on a GPU: tensors, all different, that wait for an addition
  std::vector<at::Tensor> terms_;  // [i]: what to add to sums_[i]
};

/// Adds `term` to the parameter's gradient, through the queue if it is not null.
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& term, WeightGradients* queue);

/// Shape of a weight: [in, out] in GPT-2, [out, in] in other models.
enum class WeightLayout : std::uint8_t { InOut, OutIn };

/// A linear layer.
struct Linear {
  at::Tensor weight;  ///< [in, out] or [out, in]
  at::Tensor bias;    ///< [out]; undefined: no bias
  WeightLayout layout = WeightLayout::OutIn;
};

/// Makes an input of linear layers, such as the output of a norm, again in their backwards, once for all of them, so
/// that the input need not be kept (RecomputeLevel::Cheap in model_config/partition.h).
class Remaking : public torch::CustomClassHolder {
 public:
  using Make = std::function<at::Tensor(const std::vector<at::Tensor>& from)>;
  /// `make` must be deterministic and give the same bits as in the forward.
  explicit Remaking(Make make) : make_(std::move(make)) {}
  /// Counts a layer whose backward will call read().
  void add_reader() { ++readers_; }
  /// Returns the input. The first of the counted readers makes it with `from`, and the last one frees it.
  [[nodiscard]] at::Tensor read(const std::vector<at::Tensor>& from);

 private:
  Make make_;
  std::int64_t readers_ = 0;
  std::int64_t reads_ = 0;
  at::Tensor made_;  // between the first and the last reader
};

/// The input of linear layers.
struct LinearInput {
  LinearInput(at::Tensor input) : value(std::move(input)) {}  // NOLINT(google-explicit-constructor): usually no more
  at::Tensor value;
  /// If `remaking` is set, the layers keep these tensors for backward instead of `value`, and make `value` of them
  /// again.
  std::vector<at::Tensor> from = {};
  c10::intrusive_ptr<Remaking> remaking = {};
};

/// Returns a view of the weight with shape [out, in].
[[nodiscard]] at::Tensor out_in(const Linear& layer);
/// Returns the bias, or nothing if the layer has none.
[[nodiscard]] std::optional<at::Tensor> bias_of(const Linear& layer);

/// Applies the layer: input [..., in] -> [..., out]. Backward accumulates into the gradients of weight and bias,
/// through the WeightGradients queue that was current in the forward. These gradients may be undefined or of a wider
/// type. Between I and W, only the input and the output's gradient are kept.
[[nodiscard]] at::Tensor linear(const LinearInput& input, const Linear& layer);

/// Returns the parameter's gradient; if it is undefined, first sets it to zeros.
[[nodiscard]] at::Tensor gradient_of(at::Tensor parameter);

/// Divides a dimension of a matrix product on a GPU into parts, because the fast kernels for 16-bit types need sizes
/// that are multiples of 8. Calls `act(first, count)` once if `size` is a multiple of 8; otherwise for the largest
/// multiple of 64, and for the rest.
template <class Act>
void for_each_fast_part(std::int64_t size, const Act& act) {
  constexpr std::int64_t kNeeded = 8;
  constexpr std::int64_t kMultiple = 64;
  const std::int64_t first = size % kNeeded == 0 ? size : size / kMultiple * kMultiple;
  if (first > 0) act(std::int64_t{0}, first);
  if (first < size) act(first, size - first);
}

/// Computes the gradients of weight and bias (of each that is defined and requires grad), and adds them to their
/// gradients so far. `input` is [rows, in], `output_gradient` [rows, out], and `factor` [] scales the output gradient
/// (undefined: 1). `queue` is the queue that runs this call, and may add the gradient of the bias later
/// (WeightGradients::add()); null: none.
void add_weight_gradient(const Linear& layer, const at::Tensor& input, const at::Tensor& output_gradient,
                         const at::Tensor& factor = {}, WeightGradients* queue = nullptr);

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
