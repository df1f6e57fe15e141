#pragma once
// Llama (Touvron et al., 2023) and its relatives Mistral, Qwen2 and Qwen3: rotary positions, RMS norm before each
// sub-layer, gated feed-forward, heads that share keys and values.

#include <vector>

#include "model/rms_norm.h"
#include "model/rotary_positions.h"
#include "model/transformer_stage.h"

namespace chimera {

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
