#pragma once
// GPT-2 (Radford et al., 2019): learned positions, layer norm before each sub-layer, fused query-key-value projection.

#include "model/transformer_stage.h"

namespace chimera {

class Gpt2Stage final : public TransformerStage {
 public:
  Gpt2Stage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
            const TiedLeaves& tied, at::ScalarType compute);

 private:
  struct Block {
    LayerNorm ln_1;
    Linear c_attn;  ///< H -> query, key, value
    Linear attn_c_proj;
    LayerNorm ln_2;
    Linear c_fc;
    Linear mlp_c_proj;
  };

  [[nodiscard]] at::Tensor embed(const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                     const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor feed_forward(std::size_t index, const at::Tensor& sum,
                                        const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor final_states(const at::Tensor& hidden) const override { return layer_norm(hidden, ln_f_); }

  std::vector<Block> blocks_;
  at::Tensor wte_;  ///< [V, H]; undefined without the embedding
  at::Tensor wpe_;  ///< [positions, H]; undefined without the embedding
  LayerNorm ln_f_;  ///< undefined without the head
};

}  // namespace chimera
