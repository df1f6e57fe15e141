#pragma once

// Llama (Touvron et al., 2023), Mistral, Qwen2 and Qwen3: rotary positions, RMS norm before each sub-layer, gated
// feed-forward, grouped-query attention. On a GPU with low-precision copies, the query, key and value matrices of a
// block are one matrix, and so are gate and up: one product instead of several.
//
// Rotary positions (Su et al., "RoFormer", 2021; scaling of Llama 3.1 as in Hugging Face's modeling_rope_utils.py) turn
// pairs of elements of each query and key by angles that grow with the token's position. A stage caches the cosines and
// sines. Letters in shapes are as in model/layers.h, with d the width of a head.

#include <ATen/core/Tensor.h>
#include <vector>

#include "model/rms_norm.h"
#include "model/transformer_stage.h"
#include "model_config/config.h"

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

 private:
  struct Block {
    RmsNorm input_norm;
    std::vector<Linear> query_key_value;  ///< three layers, or one for all; always three with query_norm
    RmsNorm query_norm;                   ///< per head; undefined without query_key_norm
    RmsNorm key_norm;                     ///< per head; undefined without query_key_norm
    Linear attention_output;
    RmsNorm post_attention_norm;
    std::vector<Linear> gate_and_up;  ///< two layers, or one for both
    Linear down;
  };

  [[nodiscard]] at::Tensor embed(const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                     const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor feed_forward(std::size_t index, const at::Tensor& sum,
                                        const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor final_states(const at::Tensor& hidden) const override { return rms_norm(hidden, norm_); }
  [[nodiscard]] RmsNorm rms_norm_named(const std::string& name);
  /// Returns the linear layers `names`: as one layer if `may_pack`, they have no bias, and packed_for_compute() packs
  /// their matrices.
  [[nodiscard]] std::vector<Linear> packed_layers(const std::vector<std::string>& names, bool may_pack = true);
  /// Returns the projections of `normed` [b, L, H], with rotated queries and keys, at positions from `first` on.
  [[nodiscard]] QueryKeyValue projections(const Block& layer, const at::Tensor& normed, std::int64_t first) const;
  /// Applies norm (if defined) and rotation to queries or keys, [b, L, heads * d], at positions from `first` on.
  [[nodiscard]] at::Tensor positioned(const at::Tensor& projection, const RmsNorm& norm, std::int64_t first) const;
  /// Returns positions `first` .. `end` - 1 of a cached table. Throws ConfigError if `end` exceeds the model's
  /// positions or sliding window.
  [[nodiscard]] RotaryTable table_of(std::int64_t first, std::int64_t end, const at::Tensor& hidden) const;

  std::vector<Block> blocks_;
  at::Tensor embedding_;       ///< [V, H]; undefined if another stage has it
  RmsNorm norm_;               ///< undefined if another stage has it
  mutable RotaryTable table_;  // cache of table_of()
};

}  // namespace chimera
