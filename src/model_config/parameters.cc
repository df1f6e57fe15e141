#include "model_config/parameters.h"

#include <fmt/format.h>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <string_view>

namespace chimera {
namespace {

constexpr double kStandardDeviation = 0.02;  // as published

using Specs = std::vector<ParameterSpec>;

/// Collects the parameters of a layer; names continue `prefix`.
struct LayerSpecs {
  std::string prefix = {};
  Specs specs = {};

  void add(std::string_view name, std::vector<std::int64_t> shape, Initial initial = {}) {
    specs.push_back({prefix + std::string(name), std::move(shape), initial});
  }
  void add_matrix(std::string_view name, std::int64_t rows, std::int64_t columns,
                  double standard_deviation = kStandardDeviation) {
    add(fmt::format("{}.weight", name), {rows, columns}, {Initial::Kind::Normal, standard_deviation});
  }
  void add_norm(std::string_view name, std::int64_t width, bool has_bias = true) {
    add(fmt::format("{}.weight", name), {width}, {Initial::Kind::Ones});
    if (has_bias) add(fmt::format("{}.bias", name), {width});
  }
  /// Adds a matrix [out, in].
  void add_linear(std::string_view name, std::int64_t in, std::int64_t out, bool has_bias = true) {
    add_matrix(name, out, in);
    if (has_bias) add(fmt::format("{}.bias", name), {out});
  }
  /// Adds a matrix [in, out] with a bias, as in GPT-2.
  void add_transposed(std::string_view name, std::int64_t in, std::int64_t out,
                      double standard_deviation = kStandardDeviation) {
    add_matrix(name, in, out, standard_deviation);
    add(fmt::format("{}.bias", name), {out});
  }
};

/// Flat gradients and owners of parameters follow the order of these lists (model/parameter_group.h).
Specs gpt2_block(const ModelConfig& config, std::int64_t layer) {
  const std::int64_t hidden = config.hidden;
  // Each block adds two projections to the residual stream, whose variance must not grow with depth.
  const double residual = kStandardDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  LayerSpecs block{fmt::format("h.{}.", layer)};
  block.add_norm("ln_1", hidden);
  block.add_transposed("attn.c_attn", hidden, 3 * hidden);
  block.add_transposed("attn.c_proj", hidden, hidden, residual);
  block.add_norm("ln_2", hidden);
  block.add_transposed("mlp.c_fc", hidden, config.feed_forward);
  block.add_transposed("mlp.c_proj", config.feed_forward, hidden, residual);
  return block.specs;
}

Specs bert_block(const ModelConfig& config, std::int64_t layer) {
  const std::int64_t hidden = config.hidden;
  LayerSpecs block{fmt::format("bert.encoder.layer.{}.", layer)};
  for (const char* projection : {"query", "key", "value"})
    block.add_linear(fmt::format("attention.self.{}", projection), hidden, hidden);
  block.add_linear("attention.output.dense", hidden, hidden);
  block.add_norm("attention.output.LayerNorm", hidden);
  block.add_linear("intermediate.dense", hidden, config.feed_forward);
  block.add_linear("output.dense", config.feed_forward, hidden);
  block.add_norm("output.LayerNorm", hidden);
  return block.specs;
}

Specs llama_block(const ModelConfig& config, std::int64_t layer) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t head_size = head_size_of(config);
  const std::int64_t queries = config.heads * head_size;
  const std::int64_t keys = key_value_heads_of(config) * head_size;
  const bool input_bias = config.attention_bias != AttentionBias::None;
  LayerSpecs block{fmt::format("model.layers.{}.", layer)};
  block.add_norm("input_layernorm", hidden, /*has_bias=*/false);
  block.add_linear("self_attn.q_proj", hidden, queries, input_bias);
  block.add_linear("self_attn.k_proj", hidden, keys, input_bias);
  block.add_linear("self_attn.v_proj", hidden, keys, input_bias);
  if (config.query_key_norm) {
    block.add_norm("self_attn.q_norm", head_size, /*has_bias=*/false);
    block.add_norm("self_attn.k_norm", head_size, /*has_bias=*/false);
  }
  block.add_linear("self_attn.o_proj", queries, hidden, config.attention_bias == AttentionBias::All);
  block.add_norm("post_attention_layernorm", hidden, /*has_bias=*/false);
  block.add_linear("mlp.gate_proj", hidden, config.feed_forward, config.feed_forward_bias);
  block.add_linear("mlp.up_proj", hidden, config.feed_forward, config.feed_forward_bias);
  block.add_linear("mlp.down_proj", config.feed_forward, hidden, config.feed_forward_bias);
  // With more ranks than these heads, tensor parallelism keeps these matrices whole (is_cut() in tensor_cut.h).
  for (ParameterSpec& spec : block.specs) {
    const auto is_of = [&](std::string_view layer) { return spec.name.find(layer) != std::string::npos; };
    if (is_of(".k_proj.") || is_of(".v_proj.")) spec.key_value_heads = key_value_heads_of(config);
  }
  return block.specs;
}

void append(Specs& specs, Specs more) {
  specs.insert(specs.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

std::int64_t parameter_count(const std::vector<ParameterSpec>& parameters) {
  return std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0},
                         [](std::int64_t sum, const ParameterSpec& spec) { return sum + spec.count(); });
}

std::vector<ParameterSpec> embedding_parameters(const ModelConfig& config) {
  LayerSpecs embedding;
  switch (config.family) {
    case Family::Gpt2:
      embedding.add_matrix("wte", config.vocabulary, config.hidden);
      embedding.add_matrix("wpe", config.positions, config.hidden);
      break;
    case Family::Bert:
      embedding.prefix = "bert.embeddings.";
      embedding.add_matrix("word_embeddings", config.vocabulary, config.hidden);
      embedding.add_matrix("position_embeddings", config.positions, config.hidden);
      embedding.add_matrix("token_type_embeddings", kTokenTypes, config.hidden);
      embedding.add_norm("LayerNorm", config.hidden);
      break;
    case Family::Llama: embedding.add_matrix("model.embed_tokens", config.vocabulary, config.hidden); break;
  }
  return embedding.specs;
}

std::vector<ParameterSpec> block_parameters(const ModelConfig& config, std::int64_t layer) {
  switch (config.family) {
    case Family::Gpt2: return gpt2_block(config, layer);
    case Family::Bert: return bert_block(config, layer);
    case Family::Llama: return llama_block(config, layer);
  }
  return {};
}

std::vector<ParameterSpec> head_parameters(const ModelConfig& config) {
  LayerSpecs head;
  if (config.family == Family::Bert) {
    head.add_linear("bert.pooler.dense", config.hidden, config.hidden);
    head.add_linear("cls.predictions.transform.dense", config.hidden, config.hidden);
    head.add_norm("cls.predictions.transform.LayerNorm", config.hidden);
    // A tied matrix is in embedding_parameters() only, so that it counts once.
    if (!config.tied) head.add_matrix("cls.predictions.decoder", config.vocabulary, config.hidden);
    head.add("cls.predictions.bias", {config.vocabulary});
    head.add_linear("cls.seq_relationship", config.hidden, 2);
    return head.specs;
  }
  const bool is_gpt2 = config.family == Family::Gpt2;
  head.add_norm(is_gpt2 ? "ln_f" : "model.norm", config.hidden, /*has_bias=*/is_gpt2);
  if (!config.tied) head.add_matrix("lm_head", config.vocabulary, config.hidden);
  return head.specs;
}

ParameterSpec tied_parameter(const ModelConfig& config) { return embedding_parameters(config).front(); }

std::vector<ParameterSpec> stage_parameters(const ModelConfig& config, const StageLayers& stage) {
  Specs specs;
  if (stage.embedding) append(specs, embedding_parameters(config));
  for (std::int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer)
    append(specs, block_parameters(config, layer));
  if (stage.head) append(specs, head_parameters(config));
  if (config.tied && stage.head && !stage.embedding) specs.push_back(tied_parameter(config));
  return specs;
}

std::vector<ParameterSpec> own_parameters(const ModelConfig& config, const StageLayers& stage) {
  Specs specs = stage_parameters(config, stage);
  if (config.tied)
    std::erase_if(specs, [name = tied_parameter(config).name](const auto& spec) { return spec.name == name; });
  return specs;
}

std::int64_t parameter_count(const ModelConfig& config, const StageLayers& stage) {
  const bool only_head_is_tied = config.tied && stage.head && !stage.embedding;
  return (stage.embedding ? parameter_count(embedding_parameters(config)) : 0) +
         stage.blocks() * parameter_count(block_parameters(config, 0)) +
         (stage.head ? parameter_count(head_parameters(config)) : 0) +
         (only_head_is_tied ? tied_parameter(config).count() : 0);
}

std::int64_t parameter_count(const ModelConfig& config) {
  return parameter_count(config, {0, config.layers, true, true});
}

}  // namespace chimera
