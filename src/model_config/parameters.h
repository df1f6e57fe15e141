#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"

// What a model's arithmetic takes, whoever computes it and how often.

// The parameters of a model as names, shapes and initial values. Nothing is allocated, so that models of any size can
// be counted. Names, shapes and layouts are those of Hugging Face's GPT2LMHeadModel (without its prefix
// `transformer.`), BertForPreTraining, and LlamaForCausalLM with its relatives of Mistral, Qwen2 and Qwen3, always with
// the global layer index.

namespace chimera {

/// FLOPs of one forward and backward of the whole model for a micro-batch: what model FLOPs utilization counts
/// (Chowdhery et al., PaLM, 2022, appendix B). Products that recomputation or the head make again are not in it.
/// Throws ConfigError as layer_footprint() does.
[[nodiscard]] double model_flops(const ModelConfig& config, const Workload& workload);

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
  /// The number of its elements.
  [[nodiscard]] std::int64_t count() const;
};

/// Before the first block: the token embedding; GPT-2 and BERT also positions, BERT token types and a layer norm.
[[nodiscard]] std::vector<ParameterSpec> embedding_parameters(const ModelConfig& config);
/// The block with the global index `layer`. Every block has the same shapes.
[[nodiscard]] std::vector<ParameterSpec> block_parameters(const ModelConfig& config, std::int64_t layer);
/// After the last block. GPT-2 and Llama: final norm and, untied, the output matrix. BERT: pooler, the masked-token
/// head (its one bias is `cls.predictions.bias`; untied also its matrix), and the sentence-order head.
[[nodiscard]] std::vector<ParameterSpec> head_parameters(const ModelConfig& config);
/// The matrix of a tied model that is both token embedding and output matrix: named and initialised as the embedding's.
[[nodiscard]] ParameterSpec tied_parameter(const ModelConfig& config);
/// The parameters of a stage, in the order embedding, blocks, head. A tied matrix belongs to the stage with the
/// embedding and to the one with the head; where these are two, it comes last in the latter.
[[nodiscard]] std::vector<ParameterSpec> stage_parameters(const ModelConfig& config, const StageLayers& stage);
/// The parameters of a stage without the tied matrix: those that it shares with no other stage.
[[nodiscard]] std::vector<ParameterSpec> own_parameters(const ModelConfig& config, const StageLayers& stage);

/// Elements of all parameters of a stage, in constant time; of a tied model, whose matrix the first stage has as well
/// as the last, more in all than the model's.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config, const StageLayers& stage);
/// Elements of all parameters of the model, each once.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config);

}  // namespace chimera
