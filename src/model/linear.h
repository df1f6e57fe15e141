#pragma once
// The affine map, with a backward that can be split into input gradient and weight gradient.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace chimera {

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
