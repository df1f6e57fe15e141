#pragma once

// Base class of the stages of GPT-2, BERT and Llama: consecutive blocks, after the embedding on the first stage and
// before the head on the last. Each block is attention and then feed-forward. A micro-batch passes through
//
//   embed() -> [attention() -> feed_forward()] x blocks -> final_states() -> output matrix -> loss
//
// A family (gpt2_stage.cc, bert_stage.cc, llama_stage.cc) adds its layers and their parameters' names; it reads its
// parameters by name in its constructor. The base class handles what families share: slices of the sequence (and text
// generation, which feeds one token at a time), recomputation of blocks, the matrix that embedding and head share in
// a tied model, and the division of layers over T ranks (tensor_parallel.h). make_stage.h makes the stages. Letters in
// shapes: b sequences of a micro-batch, L tokens of a sequence, H hidden width, V vocabulary.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "model/layers.h"
#include "model/stage.h"
#include "model/tensor_parallel.h"
#include "model_config/config.h"
#include "model_config/partition.h"

namespace chimera {

/// Arguments of a stage's constructor.
struct TransformerParts {
  ModelConfig config;
  StageLayers layers;
  std::vector<Parameter> parameters;
  TiedLeaves tied;  ///< autograd leaves of a tied model's shared matrix
  at::ScalarType compute = at::kFloat;
  TensorGroup* tensor = nullptr;  ///< ranks that share the layers; null: this rank has them whole
};

/// Consecutive layers of GPT-2, BERT or Llama.
class TransformerStage : public Stage {
 public:
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) final;

  /// Returns the output of this stage's last block, [b, L, H]; `input` as in Stage::forward(), undefined on the first
  /// stage.
  [[nodiscard]] at::Tensor hidden_states(const at::Tensor& input, const MicroBatch& batch) const;
  /// Returns the score of each token of the vocabulary, [b, L, V]; the stage must have the head.
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden) const {
    return whole_scores(linear(final_states(hidden), output_), vocabulary());
  }
  /// Returns BERT's scores of "B follows A" and "B does not", [b, 2]; undefined for other families. The stage must have
  /// the head.
  [[nodiscard]] virtual at::Tensor sentence_logits(const at::Tensor& /*hidden*/) const { return {}; }

 protected:
  explicit TransformerStage(TransformerParts parts);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const StageLayers& layers() const { return layers_; }
  /// Returns, for each block of this stage, the prefix of its parameters' names: `family`, such as `h.`, and then the
  /// index of the block in the model.
  [[nodiscard]] std::vector<std::string> block_names(const std::string& family) const;
  /// Returns the parameter with this name; the stage must have it.
  [[nodiscard]] at::Tensor parameter(const std::string& name) const;
  /// Returns parameter(name) in the type of hidden states.
  [[nodiscard]] at::Tensor weight(const std::string& name) { return for_compute(parameter(name)); }
  [[nodiscard]] bool has_parameter(const std::string& name) const;
  /// Return the layer with the parameters `name`.weight and `name`.bias; a linear layer may lack the bias.
  [[nodiscard]] Linear linear_named(const std::string& name, WeightLayout layout = WeightLayout::OutIn);
  [[nodiscard]] LayerNorm layer_norm_named(const std::string& name);

  /// Returns the token embedding [V, H]: the tied matrix or, in an untied model, the parameter `name`.
  [[nodiscard]] at::Tensor token_table(const std::string& name) const;
  /// Sets the output matrix [V, H]: the tied matrix or, in an untied model, the parameter `name`.
  void set_output(const std::string& name, const at::Tensor& bias = {});
  [[nodiscard]] const Linear& output() const { return output_; }

  [[nodiscard]] TensorGroup* tensor() const { return tensor_; }
  /// Returns the input of layers that T ranks divide by outputs (enter_split()).
  [[nodiscard]] at::Tensor enter(const at::Tensor& own) const { return enter_split(own, tensor_); }
  /// Applies a layer that T ranks divide by inputs (row_linear()).
  [[nodiscard]] at::Tensor row_linear(const LinearInput& input, const Linear& layer) const {
    return chimera::row_linear(input, layer, tensor_);
  }
  /// Returns make(from) as an input of linear layers of block `index`. At RecomputeLevel::Cheap, these layers keep only
  /// `from`, and their backward calls `make` again.
  [[nodiscard]] LinearInput remade(std::size_t index, TensorVector from, const Remaking::Make& make) const;
  /// The same with a known value of make(from).
  [[nodiscard]] LinearInput remade(std::size_t index, at::Tensor value, TensorVector from,
                                   const Remaking::Make& make) const;
  /// Returns the number of query heads of this rank.
  [[nodiscard]] std::int64_t heads() const;
  /// Returns which of the `count` tokens of each sequence, or slice, this rank has outside of split layers.
  [[nodiscard]] TensorRange own_tokens(std::int64_t count) const;
  /// Applies dropout() to hidden states of own_tokens(), [b, l, H].
  [[nodiscard]] at::Tensor token_dropout(const at::Tensor& hidden, Dropout masks, DropoutSite site) const;
  /// Returns the rows of this rank in the token embedding and the output matrix.
  [[nodiscard]] VocabularyPart vocabulary() const;

  /// Returns the dropout of block `index` for this micro-batch; the same masks when the block is recomputed.
  [[nodiscard]] Dropout block_dropout(std::size_t index, const MicroBatch& batch) const;
  /// Returns `projections` of block `index`, with the keys and values of earlier tokens if the batch carries any
  /// (key_value_cache.h).
  [[nodiscard]] static QueryKeyValue with_earlier(std::size_t index, const QueryKeyValue& projections,
                                                  const MicroBatch& batch);

 private:
  /// [b, L] tokens -> [b, L, H].
  [[nodiscard]] virtual at::Tensor embed(const MicroBatch& batch) const = 0;
  /// Returns `hidden` plus the attention sub-layer of block `index`: [b, L, H] -> [b, L, H]. `limits` is the result of
  /// document_limits() (GPT-2, Llama) or has the attention mask (BERT) of the batch. Must not read tokens from the
  /// batch: recomputation calls it again, when only the batch's `dropout`, earlier keys and values, and first
  /// token are kept. The same holds for feed_forward().
  [[nodiscard]] virtual at::Tensor attention(std::size_t index, const at::Tensor& hidden, const AttentionLimits& limits,
                                             const MicroBatch& batch) const = 0;
  /// Runs the rest of block `index` on the result of attention(): [b, L, H] -> [b, L, H].
  [[nodiscard]] virtual at::Tensor feed_forward(std::size_t index, const at::Tensor& sum,
                                                const MicroBatch& batch) const = 0;
  /// Returns the input of the output matrix for the hidden states [..., H] of the last block.
  [[nodiscard]] virtual at::Tensor final_states(const at::Tensor& hidden) const = 0;
  /// Returns the loss of forward(): of the next token, unless a family has another.
  [[nodiscard]] virtual at::Tensor loss(const at::Tensor& hidden, const MicroBatch& batch) const;
  /// Runs block `index` of this stage: [b, L, H] -> [b, L, H].
  [[nodiscard]] at::Tensor block(std::size_t index, const at::Tensor& hidden, const AttentionLimits& limits,
                                 const MicroBatch& batch) const;

  ModelConfig config_;
  StageLayers layers_;
  TiedLeaves tied_;
  Linear output_;  // undefined without the head
  TensorGroup* tensor_;
};

[[nodiscard]] std::unique_ptr<Stage> make_gpt2_stage(TransformerParts parts);
[[nodiscard]] std::unique_ptr<Stage> make_bert_stage(TransformerParts parts);
[[nodiscard]] std::unique_ptr<Stage> make_llama_stage(TransformerParts parts);

}  // namespace chimera
