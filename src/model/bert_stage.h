#pragma once
// BERT (Devlin et al., 2019): token types, layer norm after each sub-layer, masked tokens, sentence order. Trains all
// rows of the token embedding; Hugging Face by default skips the padding token's row.

#include "model/transformer_stage.h"

namespace chimera {

class BertStage final : public TransformerStage {
 public:
  BertStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
            const TiedLeaves& tied, at::ScalarType compute);
  /// Returns scores of "B follows A" and "B does not", [b, 2]; the stage must have the head.
  [[nodiscard]] at::Tensor sentence_logits(const at::Tensor& hidden) const;

 private:
  struct Embedding {
    at::Tensor words;        ///< [V, H]
    at::Tensor positions;    ///< [positions, H]
    at::Tensor token_types;  ///< [2, H]
    LayerNorm norm;
  };
  struct Block {
    Linear query;
    Linear key;
    Linear value;
    Linear attention_output;
    LayerNorm attention_norm;
    Linear intermediate;
    Linear output;
    LayerNorm output_norm;
  };
  struct Head {
    Linear pooler;
    Linear transform;
    LayerNorm transform_norm;
    Linear seq_relationship;
  };

  [[nodiscard]] at::Tensor embed(const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                     const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor feed_forward(std::size_t index, const at::Tensor& sum,
                                        const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor final_states(const at::Tensor& hidden) const override;
  /// Adds the losses of masked tokens and of sentence order.
  [[nodiscard]] at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const override;

  Embedding embedding_;  ///< undefined if another stage has it
  std::vector<Block> blocks_;
  Head head_;  ///< undefined if another stage has it
};

}  // namespace chimera
