#pragma once
// RMS norm, the normalization of Llama and its relatives: like layer norm, but without mean and bias. Source: Zhang and
// Sennrich, "Root Mean Square Layer Normalization", NeurIPS'19.

#include <ATen/core/Tensor.h>

namespace chimera {

struct RmsNorm {
  at::Tensor weight;   ///< [n]
  double epsilon = 0;  ///< added to the mean square
};

/// Returns x / sqrt(mean(x^2) + epsilon), rounded to the input's type, times the weight: [..., n] -> [..., n]. Computes
/// in at least float32. Backward keeps the input and one number per row. The weight's gradient does not depend on the
/// number of threads. GPU kernels round once, after the weight, and round a micro-batch's weight gradient to its type.
[[nodiscard]] at::Tensor rms_norm(const at::Tensor& input, const RmsNorm& layer);

}  // namespace chimera
