#pragma once

// Parameters of a model as names, shapes and kinds of initial values, without tensors. Names and shapes are as in
// Hugging Face's GPT2LMHeadModel (without the prefix `transformer.`), BertForPreTraining, LlamaForCausalLM and its
// variants for Mistral, Qwen2 and Qwen3. The number in a name is the index of the block in the model, not in the stage.
// Stages create their tensors from these specifications, checkpoints and exports use the names, and footprints count
// the elements.

#include "model_config/model_config.h"
#include "model_config/partition.h"

namespace chimera {

/// Initial values of a parameter.
struct Initial {
  enum class Kind : std::uint8_t { Zeros, Ones, Normal };
  Kind kind = Kind::Zeros;
  double standard_deviation = 0;  ///< Normal only; the mean is 0
  friend bool operator==(const Initial&, const Initial&) = default;
};

/// A parameter without its values.
struct ParameterSpec {
  std::string name;  ///< e.g. `h.5.attn.c_attn.weight`; unique in the model
  std::vector<std::int64_t> shape;
  Initial initial;
  std::int64_t key_value_heads = 0;  ///< heads in a matrix or bias of Llama's keys or values; 0: another parameter
  [[nodiscard]] std::int64_t count() const;
};

/// Returns the number of elements of all parameters.
[[nodiscard]] std::int64_t parameter_count(const std::vector<ParameterSpec>& parameters);

/// Returns the token embedding, positions (GPT-2, BERT), token types and a layer norm (BERT).
[[nodiscard]] std::vector<ParameterSpec> embedding_parameters(const ModelConfig& config);
/// Returns the parameters of the block with the global number `layer`. Every block has the same shapes.
[[nodiscard]] std::vector<ParameterSpec> block_parameters(const ModelConfig& config, std::int64_t layer);
/// Returns the parameters after the last block. GPT-2 and Llama: final norm and, if untied, the output matrix. BERT:
/// pooler, masked-token head (its only bias is `cls.predictions.bias`; if untied, also its matrix), sentence-order
/// head.
[[nodiscard]] std::vector<ParameterSpec> head_parameters(const ModelConfig& config);
/// Returns the matrix that is both token embedding and output matrix, named as the embedding.
[[nodiscard]] ParameterSpec tied_parameter(const ModelConfig& config);
/// Returns the parameters of a stage, in the order embedding, blocks, head. A tied matrix belongs to the stages with
/// embedding and head; in a stage with only the head, it comes last.
[[nodiscard]] std::vector<ParameterSpec> stage_parameters(const ModelConfig& config, const StageLayers& stage);
/// Returns the parameters of a stage without the tied matrix.
[[nodiscard]] std::vector<ParameterSpec> own_parameters(const ModelConfig& config, const StageLayers& stage);

/// Returns the number of elements in a stage, in constant time. The first and last stage both count a tied matrix.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config, const StageLayers& stage);
/// Returns the number of elements in the model; a tied matrix counts once.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config);

}  // namespace chimera
