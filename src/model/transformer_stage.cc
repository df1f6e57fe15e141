#include "model/transformer_stage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/invariant.h"
#include "model/key_value_cache.h"
#include "model/linear_cross_entropy.h"

namespace chimera {

TransformerStage::TransformerStage(TransformerParts parts)
    : Stage(std::move(parts.parameters), parts.tied, parts.compute),
      config_(std::move(parts.config)),
      layers_(parts.layers),
      tied_(std::move(parts.tied)),
      tensor_(parts.tensor) {}

at::Tensor TransformerStage::forward(const at::Tensor& input, const MicroBatch& batch) {
  const at::Tensor hidden = hidden_states(input, batch);
  return layers_.head ? loss(hidden, batch) : hidden;
}

at::Tensor TransformerStage::hidden_states(const at::Tensor& input, const MicroBatch& batch) const {
  // A stage in the middle gets the hidden states of the one before.
  at::Tensor hidden = layers_.embedding ? embed(batch) : input;
  const auto blocks = static_cast<std::size_t>(layers_.blocks());
  // One mask for all blocks: it has L x L elements.
  AttentionLimits limits{.mask = batch.attention_mask};
  if (blocks > 0 && batch.documents.defined()) {
    // BERT has no documents, and models with documents no padding mask, so this replaces nothing.
    limits = document_limits(batch.documents, hidden.scalar_type(), batch.first_token, batch.dropout.is_active());
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    const StayOnDevice stay(static_cast<std::int64_t>(i) >= layers_.blocks() - layers_.on_device);
    hidden = block(i, hidden, limits, batch);
  }
  return hidden;
}

at::Tensor TransformerStage::block(std::size_t index, const at::Tensor& hidden, const AttentionLimits& limits,
                                   const MicroBatch& batch) const {
  const RecomputeLevel level = layers_.levels.level_of(static_cast<std::int64_t>(index));
  if (level < RecomputeLevel::Attention) return feed_forward(index, attention(index, hidden, limits, batch), batch);
  const bool is_whole = level == RecomputeLevel::Full;
  // Not the batch itself, because its tokens would stay in memory until backward.
  const auto run = [this, index, limits, is_whole,
                    settings = MicroBatch{.dropout = batch.dropout,
                                          .key_value_cache = batch.key_value_cache,
                                          .first_token = batch.first_token}](const at::Tensor& input) {
    const at::Tensor sum = attention(index, input, limits, settings);
    return is_whole ? feed_forward(index, sum, settings) : sum;
  };
  const at::Tensor result = recompute_in_backward(run, hidden);
  return is_whole ? result : feed_forward(index, result, batch);
}

LinearInput TransformerStage::remade(std::size_t index, TensorVector from, const Remaking::Make& make) const {
  at::Tensor value = make(from);
  return remade(index, std::move(value), std::move(from), make);
}

LinearInput TransformerStage::remade(std::size_t index, at::Tensor value, TensorVector from,
                                     const Remaking::Make& make) const {
  LinearInput input(std::move(value));
  const bool is_cheap = layers_.levels.level_of(static_cast<std::int64_t>(index)) == RecomputeLevel::Cheap;
  if (!is_cheap || !at::GradMode::is_enabled()) return input;
  input.from = std::move(from);
  input.remaking = c10::make_intrusive<Remaking>(make);
  return input;
}

at::Tensor TransformerStage::parameter(const std::string& name) const {
  const auto found = std::ranges::find(parameters(), name, &Parameter::name);
  require_invariant(found != parameters().end(), "the parameter " + name + " of a stage is missing");
  return found->value;
}

bool TransformerStage::has_parameter(const std::string& name) const {
  return std::ranges::find(parameters(), name, &Parameter::name) != parameters().end();
}

Linear TransformerStage::linear_named(const std::string& name, WeightLayout layout) {
  const at::Tensor bias = has_parameter(name + ".bias") ? weight(name + ".bias") : at::Tensor();
  return {.weight = weight(name + ".weight"), .bias = bias, .layout = layout};
}

LayerNorm TransformerStage::layer_norm_named(const std::string& name) {
  return {.weight = weight(name + ".weight"), .bias = weight(name + ".bias"), .epsilon = norm_epsilon_of(config_)};
}

// Names have the layer's index in the whole model, so that a checkpoint does not depend on the partition.
std::vector<std::string> TransformerStage::block_names(const std::string& family) const {
  std::vector<std::string> names;
  for (std::int64_t layer = layers_.first_layer; layer < layers_.end_layer; ++layer)
    names.push_back(family + std::to_string(layer));
  return names;
}

at::Tensor TransformerStage::token_table(const std::string& name) const {
  return tied_.embedding.defined() ? tied_.embedding : parameter(name);
}

void TransformerStage::set_output(const std::string& name, const at::Tensor& bias) {
  output_ = {.weight = for_compute(tied_.head.defined() ? tied_.head : parameter(name)), .bias = bias};
}

at::Tensor TransformerStage::loss(const at::Tensor& hidden, const MicroBatch& batch) const {
  // enter() gathers all tokens, because each rank has some rows of the output matrix for every token.
  const at::Tensor states = enter(final_states(hidden)).flatten(0, 1);
  return linear_cross_entropy(states, output_, batch.targets.flatten(), batch.token_loss_scale, std::nullopt,
                              vocabulary());
}

Dropout TransformerStage::block_dropout(std::size_t index, const MicroBatch& batch) const {
  Dropout masks = batch.dropout.in_layer(layers_.first_layer + static_cast<std::int64_t>(index));
  if (tensor_ != nullptr) masks.first_head = tensor_->place().share_of_heads(config_.heads).first;
  return masks;
}

std::int64_t TransformerStage::heads() const {
  return tensor_ == nullptr ? config_.heads : tensor_->place().share_of_heads(config_.heads).count;
}

TensorRange TransformerStage::own_tokens(std::int64_t count) const {
  return tensor_ != nullptr && tensor_->cuts_tokens() ? tensor_->place().share_of(count) : TensorRange{0, count};
}

at::Tensor TransformerStage::token_dropout(const at::Tensor& hidden, Dropout masks, DropoutSite site) const {
  if (tensor_ != nullptr && tensor_->cuts_tokens()) {
    // A rank's tokens are a slice of the sample, or of its slice.
    const std::int64_t tokens = hidden.size(1) * tensor_->place().ranks;
    if (masks.sequence == 0) masks.sequence = tokens;
    masks.first_token += own_tokens(tokens).first;
  }
  return dropout(hidden, masks, site);
}

VocabularyPart TransformerStage::vocabulary() const {
  if (tensor_ == nullptr) return {};
  // The same shares as tensor_cut() gives the embedding and the output matrix.
  return {tensor_, tensor_->place().share_of(config_.vocabulary).first, config_.vocabulary};
}

QueryKeyValue TransformerStage::with_earlier(std::size_t index, const QueryKeyValue& projections,
                                             const MicroBatch& batch) {
  return batch.key_value_cache ? append_to_cache(batch.key_value_cache, index, batch.first_token, projections)
                               : projections;
}

}  // namespace chimera
