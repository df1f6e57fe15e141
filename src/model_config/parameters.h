#pragma once
// The parameters of a model as names, shapes and initial values. Nothing is allocated, so that models of any size can
// be counted. Names, shapes and layouts are those of Hugging Face's GPT2LMHeadModel (without its prefix `transformer.`)
// and BertForPreTraining, always with the global layer index.

#include <cstdint>
#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/partition.h"

namespace chimera {

/// What a parameter holds before the first step.
struct Initial {
  enum class Kind : std::uint8_t { Zeros, Ones, Normal };
  Kind kind = Kind::Zeros;
  double standard_deviation = 0;  ///< of Normal, whose mean is 0
  friend bool operator==(const Initial&, const Initial&) = default;
};

/// One parameter that is to exist.
struct ParameterSpec {
  std::string name;  ///< e.g. `h.5.attn.c_attn.weight`; unique in the model
  std::vector<std::int64_t> shape;
  Initial initial;
  /// Its elements.
  [[nodiscard]] std::int64_t count() const;
};

/// Before the first block: token and position embeddings; BERT also token types and a layer norm.
[[nodiscard]] std::vector<ParameterSpec> embedding_parameters(const ModelConfig& config);
/// The block with the global index `layer`. Every block has the same shapes.
[[nodiscard]] std::vector<ParameterSpec> block_parameters(const ModelConfig& config, std::int64_t layer);
/// After the last block. GPT-2: final norm and, untied, the output matrix. BERT: pooler, the masked-token head (its one
/// bias is `cls.predictions.bias`; untied also its matrix), and the sentence-order head.
[[nodiscard]] std::vector<ParameterSpec> head_parameters(const ModelConfig& config);
/// The matrix of a tied model that is both token embedding and output matrix: named and initialised as the embedding's.
[[nodiscard]] ParameterSpec tied_parameter(const ModelConfig& config);
/// Those of a stage, in the order embedding, blocks, head. A tied matrix is one of the stage with the embedding and of
/// that with the head; where they are two, last of the latter.
[[nodiscard]] std::vector<ParameterSpec> stage_parameters(const ModelConfig& config, const StageLayers& stage);
/// Those without the tied matrix: what the stage shares with no other.
[[nodiscard]] std::vector<ParameterSpec> own_parameters(const ModelConfig& config, const StageLayers& stage);

/// Elements of all parameters of a stage, in constant time; of a tied model, whose matrix the first stage has as well
/// as the last, more in all than the model's.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config, const StageLayers& stage);
/// Elements of all parameters of the model, each once.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config);

}  // namespace chimera
