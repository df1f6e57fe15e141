#pragma once
// RMS norm, the normalization of Llama and its relatives: like layer norm, but without mean and bias. Source: Zhang and
// Sennrich, "Root Mean Square Layer Normalization", NeurIPS'19.

#include <ATen/core/Tensor.h>

namespace chimera {

/// Parameters of an RMS norm over vectors of n elements.
struct RmsNorm {
  at::Tensor weight;   ///< [n]
  double epsilon = 0;  ///< added to the mean square
};

/// Returns x / sqrt(mean(x^2) + epsilon), rounded to the input's type, times the weight: [..., n] -> [..., n]. Computes
/// in at least float32. Keeps the input and one number per row for the backward. The weight's gradient does not depend
/// on the number of threads. Kernels on a GPU differ: they round only after the multiplication with the weight, and
/// round the weight gradient of each micro-batch to the weight's type.
[[nodiscard]] at::Tensor rms_norm(const at::Tensor& input, const RmsNorm& layer);

}  // namespace chimera
