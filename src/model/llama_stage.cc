#include "model/llama_stage.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/embedding.h"
#include "model/linear_cross_entropy.h"
#include "model/swiglu.h"

namespace chimera {
namespace {

constexpr auto kLlamaLayout = WeightLayout::OutIn;

}  // namespace

LlamaStage::LlamaStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
                       const TiedLeaves& tied, at::ScalarType compute)
    : TransformerStage(layers, std::move(parameters), tied, compute), config_(config) {
  if (layers.embedding) {
    embedding_ = tied.embedding.defined() ? tied.embedding : parameter("model.embed_tokens.weight");
  }
  for (std::int64_t layer = layers.first_layer; layer < layers.end_layer; ++layer) {
    blocks_.push_back(block_named("model.layers." + std::to_string(layer)));
  }
  if (layers.head) {
    norm_ = rms_norm_named("model.norm");
    lm_head_ = {tied.head.defined() ? for_compute(tied.head) : weight("lm_head.weight"), {}, kLlamaLayout};
  }
}

RmsNorm LlamaStage::rms_norm_named(const std::string& name) {
  return {weight(name + ".weight"), norm_epsilon_of(config_)};
}

LlamaStage::Block LlamaStage::block_named(const std::string& name) {
  const std::string attention = name + ".self_attn.";
  const auto head_norm = [&](const char* which) {
    return config_.query_key_norm ? rms_norm_named(attention + which) : RmsNorm{};
  };
  return {rms_norm_named(name + ".input_layernorm"),
          linear_named(attention + "q_proj", kLlamaLayout),
          linear_named(attention + "k_proj", kLlamaLayout),
          linear_named(attention + "v_proj", kLlamaLayout),
          head_norm("q_norm"),
          head_norm("k_norm"),
          linear_named(attention + "o_proj", kLlamaLayout),
          rms_norm_named(name + ".post_attention_layernorm"),
          linear_named(name + ".mlp.gate_proj", kLlamaLayout),
          linear_named(name + ".mlp.up_proj", kLlamaLayout),
          linear_named(name + ".mlp.down_proj", kLlamaLayout)};
}

RotaryTable LlamaStage::table_of(std::int64_t first, std::int64_t end, const at::Tensor& hidden) const {
  if (end > config_.positions) {
    throw ConfigError(
        fmt::format("a sequence of {} tokens is longer than the model's {} positions", end, config_.positions));
  }
  require_no_sliding(config_, end);
  if (table_.length() < end) {
    const std::int64_t ahead = std::min(2 * table_.length(), config_.positions);
    table_ = rotary_table(config_, std::max(end, ahead), hidden.options());
  }
  return table_.slice(first, end);
}

at::Tensor LlamaStage::positioned(const at::Tensor& projection, const RmsNorm& norm, std::int64_t first) const {
  const RotaryTable table = table_of(first, first + projection.size(1), projection);
  if (!norm.weight.defined()) return rotate(projection, table);
  const at::Tensor heads = projection.unflatten(2, {-1, head_size_of(config_)});
  return rotate(rms_norm(heads, norm).flatten(2), table);
}

at::Tensor LlamaStage::embed(const MicroBatch& batch) const {
  const at::Tensor embedded = token_embedding(embedding_, batch.tokens);
  return dropout(embedded.to(compute_type()), batch.dropout, DropoutSite::Embedding);
}

at::Tensor LlamaStage::block(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                             const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const Dropout masks = block_dropout(index, batch);
  const at::Tensor normed = rms_norm(hidden, layer.input_norm);
  const std::int64_t first = first_position(batch);
  const QueryKeyValue projections = {positioned(linear(normed, layer.query), layer.query_norm, first),
                                     positioned(linear(normed, layer.key), layer.key_norm, first),
                                     linear(normed, layer.value)};
  const QueryKeyValue seen = with_earlier(index, projections, batch);
  const at::Tensor attended = causal_attention(seen, config_.heads, masks, mask);
  const at::Tensor middle =
      hidden + dropout(linear(attended, layer.attention_output), masks, DropoutSite::AttentionOutput);
  const at::Tensor gated = rms_norm(middle, layer.post_attention_norm);
  const at::Tensor inner = swiglu(linear(gated, layer.gate), linear(gated, layer.up));
  return middle + dropout(linear(inner, layer.down), masks, DropoutSite::FeedForwardOutput);
}

at::Tensor LlamaStage::logits(const at::Tensor& hidden) const { return linear(rms_norm(hidden, norm_), lm_head_); }

at::Tensor LlamaStage::loss(const at::Tensor& hidden, const MicroBatch& batch) const {
  const at::Tensor states = rms_norm(hidden, norm_).flatten(0, 1);
  return linear_cross_entropy(states, lm_head_, batch.targets.flatten(), batch.token_loss_scale);
}

}  // namespace chimera
