#pragma once

// Layers of Llama and its relatives (llama_stage.cc):
//  - RMS norm: like layer norm, but without mean and bias. Source: Zhang and Sennrich, "Root Mean Square Layer
//    Normalization", NeurIPS'19.
//  - Rotary position embeddings (RoPE; Su et al., "RoFormer", 2021; scaling of Llama 3.1 as in Hugging Face's
//    modeling_rope_utils.py): pairs of elements of each query and key are rotated by angles that grow with the token's
//    position. A stage keeps one table of cosines and sines.
// Letters in shapes: b sequences, L tokens of a sequence, d width of an attention head.

#include <ATen/core/Tensor.h>

#include "model_config/model_config.h"

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

/// Cosine and sine of each position's angles, [L, d / 2]: the angle of element j is position * frequency j.
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;

  /// Returns the number of positions, L; 0 if the table is undefined.
  [[nodiscard]] std::int64_t length() const { return cosine.defined() ? cosine.size(0) : 0; }
  /// Returns the table of positions first .. end - 1.
  [[nodiscard]] RotaryTable slice(std::int64_t first, std::int64_t end) const;
};

/// Returns the frequencies, [d / 2]: rope_theta^(-2j/d), with the model's rope_scaling. Computed in the type of
/// `options`, at least float32.
[[nodiscard]] at::Tensor rotary_frequencies(const ModelConfig& config, const at::TensorOptions& options);

/// Returns the table of the first `length` positions. Angles are computed in at least float32, as in Hugging Face, then
/// rounded to the type of `options`.
[[nodiscard]] RotaryTable rotary_table(const ModelConfig& config, std::int64_t length,
                                       const at::TensorOptions& options);

/// Rotates each head of `input` [b, L, heads * d] by the angles of its token; elements j and j + d/2 of a head are the
/// two coordinates of a rotation. `table` must have L positions. Backward keeps only the table. On a GPU the rotation
/// takes three kernels, and rounds to the input's type twice.
[[nodiscard]] at::Tensor rotate(const at::Tensor& input, const RotaryTable& table);

}  // namespace chimera
