#pragma once
// What the stages of all families share: embedding, a run of blocks, head.

#include <cstddef>
#include <string>
#include <vector>

#include "model/layers.h"
#include "model/stage.h"

namespace chimera {

/// A stage of a transformer. Also gives what lies between input and loss, for comparisons with other implementations.
class TransformerStage : public Stage {
 public:
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) final;

  /// What leaves the last block of this stage, [b, L, H]; `input` as for forward(). The cache of `batch`, where it has
  /// one, has then seen its tokens.
  [[nodiscard]] at::Tensor hidden_states(const at::Tensor& input, const MicroBatch& batch) const;
  /// Scores of each token of the vocabulary, [b, L, V], from hidden_states() of a stage with the head.
  [[nodiscard]] virtual at::Tensor logits(const at::Tensor& hidden) const = 0;

 protected:
  TransformerStage(const StageLayers& layers, std::vector<Parameter> parameters, const TiedLeaves& tied,
                   at::ScalarType compute);

  [[nodiscard]] const StageLayers& layers() const { return layers_; }
  /// The parameter of that name, which must be one of this stage.
  [[nodiscard]] at::Tensor parameter(const std::string& name) const;
  /// The same in the type of hidden states.
  [[nodiscard]] at::Tensor weight(const std::string& name) { return for_compute(parameter(name)); }
  [[nodiscard]] bool has_parameter(const std::string& name) const;
  /// The linear layer of the parameters `name`.weight and, where the stage has it, `name`.bias.
  [[nodiscard]] Linear linear_named(const std::string& name, WeightLayout layout);
  /// The layer norm of `name`.weight and `name`.bias.
  [[nodiscard]] LayerNorm layer_norm_named(const std::string& name, double epsilon);
  /// The masks of the block with the index `index` within this stage.
  [[nodiscard]] Dropout block_dropout(std::size_t index, const MicroBatch& batch) const;
  /// The position of the batch's first tokens.
  [[nodiscard]] static std::int64_t first_position(const MicroBatch& batch);
  /// The projections of the block with that index, with keys and values of the tokens before where there are some.
  [[nodiscard]] static QueryKeyValue with_earlier(std::size_t index, const QueryKeyValue& projections,
                                                  const MicroBatch& batch);

 private:
  /// [b, L] tokens -> [b, L, H].
  [[nodiscard]] virtual at::Tensor embed(const MicroBatch& batch) const = 0;
  /// The block with the index `index` within this stage: [b, L, H] -> [b, L, H]. `mask` says what attention does not
  /// see: document_mask() of the batch's documents (GPT-2, Llama) or its attention mask (BERT); undefined where it has
  /// none.
  [[nodiscard]] virtual at::Tensor block(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                         const MicroBatch& batch) const = 0;
  /// The scaled loss of hidden_states(), [].
  [[nodiscard]] virtual at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const = 0;

  StageLayers layers_;
};

}  // namespace chimera
