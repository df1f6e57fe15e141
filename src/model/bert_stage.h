#pragma once
// BERT (Devlin et al., 2019): token types, layer norm after each sub-layer, masked tokens and sentence order.
// Every row of the token embedding is trained; Hugging Face by default leaves out that of its padding token.

#include "model/transformer_stage.h"

namespace chimera {

/// Consecutive layers of BERT.
class BertStage final : public TransformerStage {
 public:
  /// `parameters`: those that own_parameters(config, layers) names. `tied`: the leaves of a tied matrix that it uses.
  /// `compute`: the type of hidden states.
  BertStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
            const TiedLeaves& tied, at::ScalarType compute);
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
  [[nodiscard]] at::Tensor block(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                 const MicroBatch& batch) const override;
  [[nodiscard]] at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const override;
  /// The decoder's input, made from hidden states [..., H].
  [[nodiscard]] at::Tensor transform(const at::Tensor& hidden) const;
  /// `words`, `decoder`: the tied matrix; undefined where the stage has a parameter of its own.
  [[nodiscard]] Embedding make_embedding(const at::Tensor& words);
  [[nodiscard]] Block make_block(const std::string& name);
  [[nodiscard]] Head make_head(const at::Tensor& decoder);

  std::int64_t heads_;
  double epsilon_;       ///< of the norms
  Embedding embedding_;  ///< undefined where another stage has it
  std::vector<Block> blocks_;
  Head head_;  ///< likewise
};

}  // namespace chimera
