#pragma once

#include <ATen/core/Tensor.h>
#include <vector>

#include "model/rms_norm.h"
#include "model/transformer_stage.h"
#include "model_config/config.h"

// Positions as rotations: attention then depends on how far apart two tokens are.
// Source: Su et al., "RoFormer", 2021; the scaling of Llama 3.1 as Hugging Face's modeling_rope_utils.py has it.
// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, d width of a head.

// Llama (Touvron et al., 2023) and its relatives Mistral, Qwen2 and Qwen3: rotary positions, RMS norm before each
// sub-layer, gated feed-forward, heads that share keys and values.

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

/// Consecutive layers of Llama.
class LlamaStage final : public TransformerStage {
 public:
  /// `parameters`: those that own_parameters(config, layers) names. `tied`: of a tied model, what this stage uses.
  /// `compute`: the type of hidden states.
  LlamaStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
             const TiedLeaves& tied, at::ScalarType compute);
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden) const override;

 private:
  struct Block {
    RmsNorm input_norm;
    Linear query;
    Linear key;
    Linear value;
    RmsNorm query_norm;  ///< of each head; undefined unless the model has it
    RmsNorm key_norm;    ///< likewise
    Linear attention_output;
    RmsNorm post_attention_norm;
    Linear gate;
    Linear up;
    Linear down;
  };

  [[nodiscard]] at::Tensor embed(const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor block(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                 const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const override;
  [[nodiscard]] RmsNorm rms_norm_named(const std::string& name);
  [[nodiscard]] Block block_named(const std::string& name);
  /// Queries or keys of a block, [b, L, heads * d] -> [b, L, heads * d]: normed where the model does, and turned to the
  /// positions from `first` on.
  [[nodiscard]] at::Tensor positioned(const at::Tensor& projection, const RmsNorm& norm, std::int64_t first) const;
  /// The table of the positions `first` .. `end` - 1: made once for the furthest so far, or for some more where
  /// sequences grow.
  [[nodiscard]] RotaryTable table_of(std::int64_t first, std::int64_t end, const at::Tensor& hidden) const;

  ModelConfig config_;
  std::vector<Block> blocks_;
  at::Tensor embedding_;       ///< [V, H]; undefined where another stage has it
  RmsNorm norm_;               ///< likewise
  Linear lm_head_;             ///< likewise; its weight is the tied matrix where there is one
  mutable RotaryTable table_;  // not of the model, but remembered
};

}  // namespace chimera
