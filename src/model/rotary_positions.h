#pragma once
// Positions as rotations: attention then depends on how far apart two tokens are.
// Source: Su et al., "RoFormer", 2021; the scaling of Llama 3.1 as Hugging Face's modeling_rope_utils.py has it.
// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, d width of a head.

#include <ATen/core/Tensor.h>

#include "model_config/config.h"

namespace chimera {

/// Cosine and sine of each position's angles, [L, d / 2] each: the angle of element j is position * frequency j.
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;

  [[nodiscard]] std::int64_t length() const { return cosine.defined() ? cosine.size(0) : 0; }
  /// Its positions `first` .. `end` - 1.
  [[nodiscard]] RotaryTable slice(std::int64_t first, std::int64_t end) const;
};

/// The model's frequencies, [d / 2]: rope_theta^(-2j/d), scaled as the model says; computed in the type of `options`,
/// float32 at least.
[[nodiscard]] at::Tensor rotary_frequencies(const ModelConfig& config, const at::TensorOptions& options);

/// The first `length` positions. Angles are computed in float32 at least, as Hugging Face does, then rounded to the
/// type of `options`.
[[nodiscard]] RotaryTable rotary_table(const ModelConfig& config, std::int64_t length,
                                       const at::TensorOptions& options);

/// Turns each head of `input` [b, L, heads * d] by its token's angles: elements j and j + d/2 are the two coordinates.
/// -> [b, L, heads * d]. Keeps nothing but the table, which has L positions.
[[nodiscard]] at::Tensor rotate(const at::Tensor& input, const RotaryTable& table);

}  // namespace chimera
