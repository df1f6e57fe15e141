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

enum class Layout : std::uint8_t { InOut, OutIn };

void add_matrix(Specs& specs, std::string name, std::int64_t rows, std::int64_t columns,
                double standard_deviation = kStandardDeviation) {
  specs.push_back({std::move(name), {rows, columns}, {Initial::Kind::Normal, standard_deviation}});
}

void add_layer_norm(Specs& specs, std::string_view name, std::int64_t width) {
  specs.push_back({fmt::format("{}.weight", name), {width}, {Initial::Kind::Ones}});
  specs.push_back({fmt::format("{}.bias", name), {width}, {}});
}

void add_linear(Specs& specs, Layout layout, std::string_view name, std::int64_t in, std::int64_t out,
                double standard_deviation = kStandardDeviation) {
  const bool in_out = layout == Layout::InOut;
  add_matrix(specs, fmt::format("{}.weight", name), in_out ? in : out, in_out ? out : in, standard_deviation);
  specs.push_back({fmt::format("{}.bias", name), {out}, {}});
}

Specs gpt2_embedding(const ModelConfig& config) {
  Specs specs;
  add_matrix(specs, "wte.weight", config.vocabulary, config.hidden);
  add_matrix(specs, "wpe.weight", config.positions, config.hidden);
  return specs;
}

Specs gpt2_block(const ModelConfig& config, std::int64_t layer) {
  const std::int64_t hidden = config.hidden;
  // Each block adds two projections to the residual stream, whose variance must not grow with depth.
  const double residual = kStandardDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  const auto name = [layer](std::string_view part) { return fmt::format("h.{}.{}", layer, part); };
  Specs specs;
  add_layer_norm(specs, name("ln_1"), hidden);
  add_linear(specs, Layout::InOut, name("attn.c_attn"), hidden, 3 * hidden);
  add_linear(specs, Layout::InOut, name("attn.c_proj"), hidden, hidden, residual);
  add_layer_norm(specs, name("ln_2"), hidden);
  add_linear(specs, Layout::InOut, name("mlp.c_fc"), hidden, config.feed_forward);
  add_linear(specs, Layout::InOut, name("mlp.c_proj"), config.feed_forward, hidden, residual);
  return specs;
}

Specs gpt2_head(const ModelConfig& config) {
  Specs specs;
  add_layer_norm(specs, "ln_f", config.hidden);
  if (!config.tied) add_matrix(specs, "lm_head.weight", config.vocabulary, config.hidden);
  return specs;
}

Specs bert_embedding(const ModelConfig& config) {
  Specs specs;
  add_matrix(specs, "bert.embeddings.word_embeddings.weight", config.vocabulary, config.hidden);
  add_matrix(specs, "bert.embeddings.position_embeddings.weight", config.positions, config.hidden);
  add_matrix(specs, "bert.embeddings.token_type_embeddings.weight", kTokenTypes, config.hidden);
  add_layer_norm(specs, "bert.embeddings.LayerNorm", config.hidden);
  return specs;
}

Specs bert_block(const ModelConfig& config, std::int64_t layer) {
  const std::int64_t hidden = config.hidden;
  const auto name = [layer](std::string_view part) { return fmt::format("bert.encoder.layer.{}.{}", layer, part); };
  Specs specs;
  add_linear(specs, Layout::OutIn, name("attention.self.query"), hidden, hidden);
  add_linear(specs, Layout::OutIn, name("attention.self.key"), hidden, hidden);
  add_linear(specs, Layout::OutIn, name("attention.self.value"), hidden, hidden);
  add_linear(specs, Layout::OutIn, name("attention.output.dense"), hidden, hidden);
  add_layer_norm(specs, name("attention.output.LayerNorm"), hidden);
  add_linear(specs, Layout::OutIn, name("intermediate.dense"), hidden, config.feed_forward);
  add_linear(specs, Layout::OutIn, name("output.dense"), config.feed_forward, hidden);
  add_layer_norm(specs, name("output.LayerNorm"), hidden);
  return specs;
}

Specs bert_head(const ModelConfig& config) {
  Specs specs;
  add_linear(specs, Layout::OutIn, "bert.pooler.dense", config.hidden, config.hidden);
  add_linear(specs, Layout::OutIn, "cls.predictions.transform.dense", config.hidden, config.hidden);
  add_layer_norm(specs, "cls.predictions.transform.LayerNorm", config.hidden);
  if (!config.tied) add_matrix(specs, "cls.predictions.decoder.weight", config.vocabulary, config.hidden);
  specs.push_back({"cls.predictions.bias", {config.vocabulary}, {}});
  add_linear(specs, Layout::OutIn, "cls.seq_relationship", config.hidden, 2);
  return specs;
}

void add_norm_weight(Specs& specs, std::string_view name, std::int64_t width) {
  specs.push_back({fmt::format("{}.weight", name), {width}, {Initial::Kind::Ones}});
}

void add_projection(Specs& specs, std::string_view name, std::int64_t in, std::int64_t out, bool has_bias) {
  add_matrix(specs, fmt::format("{}.weight", name), out, in);
  if (has_bias) specs.push_back({fmt::format("{}.bias", name), {out}, {}});
}

Specs llama_embedding(const ModelConfig& config) {
  Specs specs;
  add_matrix(specs, "model.embed_tokens.weight", config.vocabulary, config.hidden);
  return specs;
}

Specs llama_block(const ModelConfig& config, std::int64_t layer) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t head_size = head_size_of(config);
  const std::int64_t queries = config.heads * head_size;
  const std::int64_t keys = key_value_heads_of(config) * head_size;
  const bool input_bias = config.attention_bias != AttentionBias::None;
  const bool output_bias = config.attention_bias == AttentionBias::All;
  const auto name = [layer](std::string_view part) { return fmt::format("model.layers.{}.{}", layer, part); };
  Specs specs;
  add_norm_weight(specs, name("input_layernorm"), hidden);
  add_projection(specs, name("self_attn.q_proj"), hidden, queries, input_bias);
  add_projection(specs, name("self_attn.k_proj"), hidden, keys, input_bias);
  add_projection(specs, name("self_attn.v_proj"), hidden, keys, input_bias);
  if (config.query_key_norm) {
    add_norm_weight(specs, name("self_attn.q_norm"), head_size);
    add_norm_weight(specs, name("self_attn.k_norm"), head_size);
  }
  add_projection(specs, name("self_attn.o_proj"), queries, hidden, output_bias);
  add_norm_weight(specs, name("post_attention_layernorm"), hidden);
  add_projection(specs, name("mlp.gate_proj"), hidden, config.feed_forward, config.feed_forward_bias);
  add_projection(specs, name("mlp.up_proj"), hidden, config.feed_forward, config.feed_forward_bias);
  add_projection(specs, name("mlp.down_proj"), config.feed_forward, hidden, config.feed_forward_bias);
  return specs;
}

Specs llama_head(const ModelConfig& config) {
  Specs specs;
  add_norm_weight(specs, "model.norm", config.hidden);
  if (!config.tied) add_matrix(specs, "lm_head.weight", config.vocabulary, config.hidden);
  return specs;
}

void append(Specs& specs, Specs more) {
  specs.insert(specs.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

std::int64_t count(const Specs& specs) {
  std::int64_t sum = 0;
  for (const ParameterSpec& spec : specs) sum += spec.count();
  return sum;
}

}  // namespace

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

std::vector<ParameterSpec> embedding_parameters(const ModelConfig& config) {
  switch (config.family) {
    case Family::Gpt2: return gpt2_embedding(config);
    case Family::Bert: return bert_embedding(config);
    case Family::Llama: return llama_embedding(config);
  }
  return {};
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
  switch (config.family) {
    case Family::Gpt2: return gpt2_head(config);
    case Family::Bert: return bert_head(config);
    case Family::Llama: return llama_head(config);
  }
  return {};
}

ParameterSpec tied_parameter(const ModelConfig& config) { return embedding_parameters(config).front(); }

std::vector<ParameterSpec> stage_parameters(const ModelConfig& config, const StageLayers& stage) {
  Specs specs;
  if (stage.embedding) append(specs, embedding_parameters(config));
  for (std::int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    append(specs, block_parameters(config, layer));
  }
  if (stage.head) append(specs, head_parameters(config));
  if (config.tied && stage.head && !stage.embedding) specs.push_back(tied_parameter(config));
  return specs;
}

std::vector<ParameterSpec> own_parameters(const ModelConfig& config, const StageLayers& stage) {
  Specs specs = stage_parameters(config, stage);
  if (config.tied) {
    std::erase_if(specs, [name = tied_parameter(config).name](const auto& spec) { return spec.name == name; });
  }
  return specs;
}

std::int64_t parameter_count(const ModelConfig& config, const StageLayers& stage) {
  const bool only_head_is_tied = config.tied && stage.head && !stage.embedding;
  return (stage.embedding ? count(embedding_parameters(config)) : 0) +
         (stage.end_layer - stage.first_layer) * count(block_parameters(config, 0)) +
         (stage.head ? count(head_parameters(config)) : 0) + (only_head_is_tied ? tied_parameter(config).count() : 0);
}

std::int64_t parameter_count(const ModelConfig& config) {
  return parameter_count(config, {0, config.layers, true, true});
}

}  // namespace chimera
