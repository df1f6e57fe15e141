#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

// Split backward: what a linear layer leaves to do after the gradient of its input, and when that is done.

// The affine map, with a backward that can be split into input gradient and weight gradient.

namespace chimera {

/// The weight gradients that one micro-batch's backward through a stage still owes. A layer whose forward runs under a
/// Scope hands its weight gradient to that scope's queue during backward. A whole backward (B) adds each at once; an
/// input-gradient pass (I) keeps them, and W adds them later: the same computations in the same order for each
/// parameter, hence the same bits.
class WeightGradients : public torch::CustomClassHolder {
 public:
  using Pointer = c10::intrusive_ptr<WeightGradients>;

  /// From now on, keep what layers hand over until run().
  void defer() { deferred_ = true; }
  [[nodiscard]] bool is_deferred() const { return deferred_; }
  /// Runs `add` now, or keeps it. `add` adds to a parameter's gradient; it owns the tensors it needs.
  void hand_over(std::function<void()> add);
  /// Runs what was kept, in the order it came, and frees it.
  void run();
  /// Weight gradients kept.
  [[nodiscard]] std::size_t kept() const { return kept_.size(); }

  /// The queue of the forward under way on this thread; null outside any Scope.
  [[nodiscard]] static const Pointer& current();

  /// Makes `queue` the current one of this thread while it lives.
  class Scope {
   public:
    explicit Scope(Pointer queue);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Pointer before_;
  };

 private:
  bool deferred_ = false;
  std::vector<std::function<void()>> kept_;
};

/// How the matrix of a linear layer is stored: [in, out] by GPT-2, [out, in] by others.
enum class WeightLayout : std::uint8_t { InOut, OutIn };

/// An affine map of the last dimension.
struct Linear {
  at::Tensor weight;  ///< [in, out] or [out, in]
  at::Tensor bias;    ///< [out], or undefined for none
  WeightLayout layout = WeightLayout::OutIn;
};

/// The matrix as [out, in].
[[nodiscard]] at::Tensor out_in(const Linear& layer);
/// The bias; none where it is undefined.
[[nodiscard]] std::optional<at::Tensor> bias_of(const Linear& layer);

/// input [..., in] -> [..., out]. The one place where a weight multiplies an activation. Its backward accumulates into
/// the gradients of weight and bias (which need not be defined yet, and may be of a wider type) through the current
/// WeightGradients queue, or at once where there is none. Between I and W only the input and the gradient of the output
/// stay alive.
[[nodiscard]] at::Tensor linear(const at::Tensor& input, const Linear& layer);

/// The gradient that a parameter accumulates into; zeros where it has none yet.
[[nodiscard]] at::Tensor gradient_of(at::Tensor parameter);

/// Adds to the gradients of weight and bias, of those that are trained: `input` [rows, in], `output_gradient`
/// [rows, out]. `factor` []: of the output gradient, 1 where it is undefined.
void add_weight_gradient(const Linear& layer, const at::Tensor& input, const at::Tensor& output_gradient,
                         const at::Tensor& factor = {});

}  // namespace chimera
