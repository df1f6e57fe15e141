#pragma once
// The norm of Llama: a scale alone, without mean and shift.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS'19.

#include <ATen/core/Tensor.h>

namespace chimera {

/// Divides the last dimension by its root mean square, then scales.
struct RmsNorm {
  at::Tensor weight;   ///< [n]
  double epsilon = 0;  ///< added to the mean square
};

/// input [..., n] -> [..., n]: x / sqrt(mean(x^2) + epsilon) in float32 at least, rounded to the input's type, then
/// times the weight. Keeps its input and, in float32 at least, one number for each n of it. The weight's gradient is a
/// sum over rows in their order, whatever the number of threads.
[[nodiscard]] at::Tensor rms_norm(const at::Tensor& input, const RmsNorm& layer);

}  // namespace chimera
