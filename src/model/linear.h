#pragma once
// The affine map, with a backward that can be split into input gradient and weight gradient.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

/// How the matrix of a linear layer is stored: [in, out] by GPT-2, [out, in] by BERT.
enum class WeightLayout : std::uint8_t { InOut, OutIn };

/// An affine map of the last dimension.
struct Linear {
  at::Tensor weight;  ///< [in, out] or [out, in]
  at::Tensor bias;    ///< [out], or undefined for none
  WeightLayout layout = WeightLayout::OutIn;
};

/// input [..., in] -> [..., out]. The one place where a weight multiplies an activation. Its backward adds to the
/// gradients of weight and bias (which need not be defined yet) through the current WeightGradients queue, at once
/// where there is none; those may be of a wider type than the weight; after I only the input and the gradient of the
/// output stay alive for W.
[[nodiscard]] at::Tensor linear(const at::Tensor& input, const Linear& layer);

}  // namespace chimera
