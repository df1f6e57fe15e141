#include "model/transformer_stage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cassert>

#include "model/carried_key_values.h"
#include "model/key_value_cache.h"

namespace chimera {

TransformerStage::TransformerStage(const StageLayers& layers, std::vector<Parameter> parameters, const TiedLeaves& tied,
                                   at::ScalarType compute)
    : Stage(std::move(parameters), tied, compute), layers_(layers) {}

at::Tensor TransformerStage::forward(const at::Tensor& input, const MicroBatch& batch) {
  const at::Tensor hidden = hidden_states(input, batch);
  return layers_.head ? loss(hidden, batch) : hidden;
}

at::Tensor TransformerStage::hidden_states(const at::Tensor& input, const MicroBatch& batch) const {
  at::Tensor hidden = layers_.embedding ? embed(batch) : input;
  const auto blocks = static_cast<std::size_t>(layers_.end_layer - layers_.first_layer);
  at::Tensor mask = batch.attention_mask;
  if (blocks > 0 && batch.documents.defined()) {
    mask = document_mask(batch.documents, hidden.scalar_type(), batch.first_token);
  }
  for (std::size_t i = 0; i < blocks; ++i) hidden = block(i, hidden, mask, batch);
  if (batch.cache != nullptr) batch.cache->advance(hidden.size(1));
  return hidden;
}

at::Tensor TransformerStage::block(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                   const MicroBatch& batch) const {
  if (!batch.recompute_attention) return feed_forward(index, attention(index, hidden, mask, batch), batch);
  // Not the batch itself, because its tokens would stay in memory until backward.
  const auto attend = [this, index, mask,
                       settings = MicroBatch{.dropout = batch.dropout,
                                             .cache = batch.cache,
                                             .carried = batch.carried,
                                             .first_token = batch.first_token}](const at::Tensor& input) {
    return attention(index, input, mask, settings);
  };
  return feed_forward(index, checkpointed(attend, hidden), batch);
}

at::Tensor TransformerStage::parameter(const std::string& name) const {
  const auto found = std::ranges::find(parameters(), name, &Parameter::name);
  assert(found != parameters().end());
  return found->value;
}

bool TransformerStage::has_parameter(const std::string& name) const {
  return std::ranges::find(parameters(), name, &Parameter::name) != parameters().end();
}

Linear TransformerStage::linear_named(const std::string& name, WeightLayout layout) {
  const at::Tensor bias = has_parameter(name + ".bias") ? weight(name + ".bias") : at::Tensor();
  return {weight(name + ".weight"), bias, layout};
}

LayerNorm TransformerStage::layer_norm_named(const std::string& name, double epsilon) {
  return {weight(name + ".weight"), weight(name + ".bias"), epsilon};
}

Dropout TransformerStage::block_dropout(std::size_t index, const MicroBatch& batch) const {
  return batch.dropout.in_layer(layers_.first_layer + static_cast<std::int64_t>(index));
}

std::int64_t TransformerStage::first_position(const MicroBatch& batch) {
  return batch.cache == nullptr ? batch.first_token : batch.cache->length();
}

QueryKeyValue TransformerStage::with_earlier(std::size_t index, const QueryKeyValue& projections,
                                             const MicroBatch& batch) {
  if (batch.carried) return with_earlier_slices(batch.carried, index, batch.first_token, projections);
  return batch.cache == nullptr ? projections : batch.cache->with_earlier(index, projections);
}

}  // namespace chimera
