#pragma once
// BERT (Devlin et al., 2019): token types, layer norm after each sub-layer, masked tokens and sentence order.
// Every row of the token embedding is trained; Hugging Face by default leaves out that of its padding token.

#include "model/transformer_stage.h"

namespace chimera {

/// Consecutive layers of BERT.
class BertStage final : public TransformerStage {
 public:
  /// `parameters`: those that own_parameters(config, layers) names. `tied`: of a tied model, what this stage uses.
  BertStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
            const TiedLeaves& tied);
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden) const override;
  /// Scores of "B follows A" and "B does not", [b, 2], from hidden_states() of a stage with the head.
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
    Linear decoder;
    Linear seq_relationship;
  };

  [[nodiscard]] at::Tensor embed(const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor block(std::size_t index, const at::Tensor& hidden, const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const override;
  /// `words`, `decoder`: the tied matrix; undefined: a parameter of this stage.
  [[nodiscard]] Embedding make_embedding(const at::Tensor& words) const;
  [[nodiscard]] Block make_block(const std::string& name) const;
  [[nodiscard]] Head make_head(const at::Tensor& decoder) const;

  std::int64_t heads_;
  Embedding embedding_;  ///< undefined where another stage has it
  std::vector<Block> blocks_;
  Head head_;  ///< likewise
};

}  // namespace chimera
