#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/layers.h"
#include "model/stage.h"
#include "model_config/config.h"
#include "model_config/partition.h"

namespace chimera {

/// A stage of a transformer: embedding, consecutive blocks, head.
class TransformerStage : public Stage {
 public:
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) final;

  /// Returns the output of this stage's last block, [b, L, H]; `input` as in forward(). Adds the tokens to the batch's
  /// cache, if any.
  [[nodiscard]] at::Tensor hidden_states(const at::Tensor& input, const MicroBatch& batch) const;
  /// Returns the score of each token of the vocabulary, [b, L, V]; the stage must have the head.
  [[nodiscard]] virtual at::Tensor logits(const at::Tensor& hidden) const = 0;

 protected:
  TransformerStage(const StageLayers& layers, std::vector<Parameter> parameters, const TiedLeaves& tied,
                   at::ScalarType compute);

  [[nodiscard]] const StageLayers& layers() const { return layers_; }
  [[nodiscard]] at::Tensor parameter(const std::string& name) const;
  /// Returns parameter(name) in the type of hidden states.
  [[nodiscard]] at::Tensor weight(const std::string& name) { return for_compute(parameter(name)); }
  [[nodiscard]] bool has_parameter(const std::string& name) const;
  [[nodiscard]] Linear linear_named(const std::string& name, WeightLayout layout);
  [[nodiscard]] LayerNorm layer_norm_named(const std::string& name, double epsilon);
  [[nodiscard]] Dropout block_dropout(std::size_t index, const MicroBatch& batch) const;
  [[nodiscard]] static std::int64_t first_position(const MicroBatch& batch);
  /// Returns `projections` with the keys and values of earlier tokens in the batch's cache or slices, if any.
  [[nodiscard]] static QueryKeyValue with_earlier(std::size_t index, const QueryKeyValue& projections,
                                                  const MicroBatch& batch);

 private:
  /// [b, L] tokens -> [b, L, H].
  [[nodiscard]] virtual at::Tensor embed(const MicroBatch& batch) const = 0;
  /// Returns `hidden` plus the attention sub-layer of block `index`: [b, L, H] -> [b, L, H]. `mask` is document_mask()
  /// (GPT-2, Llama) or the attention mask (BERT) of the batch; it may be undefined. Reads only `dropout`, `cache` and
  /// the place of the slice from the batch.
  [[nodiscard]] virtual at::Tensor attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                             const MicroBatch& batch) const = 0;
  /// Runs the rest of block `index` on the sum that attention() returns.
  [[nodiscard]] virtual at::Tensor feed_forward(std::size_t index, const at::Tensor& sum,
                                                const MicroBatch& batch) const = 0;
  /// Runs block `index` of this stage: [b, L, H] -> [b, L, H].
  [[nodiscard]] at::Tensor block(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                 const MicroBatch& batch) const;
  [[nodiscard]] virtual at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const = 0;

  StageLayers layers_;
};

}  // namespace chimera
