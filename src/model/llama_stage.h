#pragma once

#include <ATen/core/Tensor.h>
#include <vector>

#include "model/rms_norm.h"
#include "model/transformer_stage.h"
#include "model_config/config.h"

// Rotary positions. Source: Su et al., "RoFormer", 2021; scaling of Llama 3.1 as in Hugging Face's
// modeling_rope_utils.py. Letters in shapes are as in model/layers.h, with d the width of a head.

// Llama (Touvron et al., 2023), Mistral, Qwen2 and Qwen3: rotary positions, RMS norm before each sub-layer, gated
// feed-forward, grouped-query attention.

namespace chimera {

/// Cosine and sine of each position's angles, [L, d / 2]: the angle of element j is position * frequency j.
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;

  [[nodiscard]] std::int64_t length() const { return cosine.defined() ? cosine.size(0) : 0; }
  [[nodiscard]] RotaryTable slice(std::int64_t first, std::int64_t end) const;
};

/// Returns the frequencies, [d / 2]: rope_theta^(-2j/d), with the model's rope_scaling. Computed in the type of
/// `options`, at least float32.
[[nodiscard]] at::Tensor rotary_frequencies(const ModelConfig& config, const at::TensorOptions& options);

/// Returns the table of the first `length` positions. Angles are computed in at least float32, as in Hugging Face, then
/// rounded.
[[nodiscard]] RotaryTable rotary_table(const ModelConfig& config, std::int64_t length,
                                       const at::TensorOptions& options);

/// Rotates each head of `input` [b, L, heads * d] by its token's angles; elements j and j + d/2 are the two
/// coordinates. Backward keeps only the table, which has L positions. On a GPU three kernels, which round to the
/// input's type twice.
[[nodiscard]] at::Tensor rotate(const at::Tensor& input, const RotaryTable& table);

class LlamaStage final : public TransformerStage {
 public:
  LlamaStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
             const TiedLeaves& tied, at::ScalarType compute);
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden) const override;

 private:
  struct Block {
    RmsNorm input_norm;
    Linear query_key_value;  ///< one matrix for the next three, or undefined
    Linear query;
    Linear key;
    Linear value;
    RmsNorm query_norm;  ///< per head; undefined without query_key_norm
    RmsNorm key_norm;    ///< per head; undefined without query_key_norm
    Linear attention_output;
    RmsNorm post_attention_norm;
    Linear gate_and_up;  ///< one matrix for the next two, or undefined
    Linear gate;
    Linear up;
    Linear down;
  };

  [[nodiscard]] at::Tensor embed(const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                     const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor feed_forward(std::size_t index, const at::Tensor& sum,
                                        const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const override;
  [[nodiscard]] RmsNorm rms_norm_named(const std::string& name);
  [[nodiscard]] Block block_named(const std::string& name);
  /// Returns the linear layers `names` as one, if they have no bias and packed_for_compute() packs their matrices.
  [[nodiscard]] Linear packed(const std::vector<std::string>& names);
  /// Returns the projections of `normed` [b, L, H], with rotated queries and keys, at positions from `first` on.
  [[nodiscard]] QueryKeyValue projections(const Block& layer, const at::Tensor& normed, std::int64_t first) const;
  /// Applies norm (if defined) and rotation to queries or keys, [b, L, heads * d], at positions from `first` on.
  [[nodiscard]] at::Tensor positioned(const at::Tensor& projection, const RmsNorm& norm, std::int64_t first) const;
  /// Returns positions `first` .. `end` - 1 of a cached table. Throws ConfigError if `end` exceeds the model's
  /// positions or sliding window.
  [[nodiscard]] RotaryTable table_of(std::int64_t first, std::int64_t end, const at::Tensor& hidden) const;

  ModelConfig config_;
  std::vector<Block> blocks_;
  at::Tensor embedding_;       ///< [V, H]; undefined if another stage has it
  RmsNorm norm_;               ///< undefined if another stage has it
  Linear lm_head_;             ///< undefined if another stage has it; its weight may be the tied matrix
  mutable RotaryTable table_;  // cache of table_of()
};

}  // namespace chimera
