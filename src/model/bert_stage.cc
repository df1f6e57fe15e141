#include "model/bert_stage.h"

#include <ATen/ATen.h>

#include "model/embedding.h"
#include "model/linear_cross_entropy.h"

namespace chimera {
namespace {

constexpr auto kBertLayout = WeightLayout::OutIn;

}  // namespace

BertStage::BertStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
                     const TiedLeaves& tied, at::ScalarType compute)
    : TransformerStage(layers, std::move(parameters), tied, compute),
      heads_(config.heads),
      epsilon_(norm_epsilon_of(config)) {
  if (layers.embedding) embedding_ = make_embedding(tied.embedding);
  for (std::int64_t layer = layers.first_layer; layer < layers.end_layer; ++layer) {
    blocks_.push_back(make_block("bert.encoder.layer." + std::to_string(layer)));
  }
  if (layers.head) head_ = make_head(tied.head);
}

BertStage::Embedding BertStage::make_embedding(const at::Tensor& words) {
  const std::string name = "bert.embeddings.";
  return {words.defined() ? words : parameter(name + "word_embeddings.weight"),
          parameter(name + "position_embeddings.weight"), parameter(name + "token_type_embeddings.weight"),
          layer_norm_named(name + "LayerNorm", epsilon_)};
}

BertStage::Block BertStage::make_block(const std::string& name) {
  return {linear_named(name + ".attention.self.query", kBertLayout),
          linear_named(name + ".attention.self.key", kBertLayout),
          linear_named(name + ".attention.self.value", kBertLayout),
          linear_named(name + ".attention.output.dense", kBertLayout),
          layer_norm_named(name + ".attention.output.LayerNorm", epsilon_),
          linear_named(name + ".intermediate.dense", kBertLayout),
          linear_named(name + ".output.dense", kBertLayout),
          layer_norm_named(name + ".output.LayerNorm", epsilon_)};
}

BertStage::Head BertStage::make_head(const at::Tensor& decoder) {
  return {linear_named("bert.pooler.dense", kBertLayout),
          linear_named("cls.predictions.transform.dense", kBertLayout),
          layer_norm_named("cls.predictions.transform.LayerNorm", epsilon_),
          {decoder.defined() ? for_compute(decoder) : weight("cls.predictions.decoder.weight"),
           weight("cls.predictions.bias"), kBertLayout},
          linear_named("cls.seq_relationship", kBertLayout)};
}

at::Tensor BertStage::embed(const MicroBatch& batch) const {
  const at::Tensor words = token_embedding(embedding_.words, batch.tokens);
  const at::Tensor types = token_embedding(embedding_.token_types, batch.token_types);
  const at::Tensor sum = add_positions(words + types, embedding_.positions);
  return dropout(layer_norm(sum.to(compute_type()), embedding_.norm), batch.dropout, DropoutSite::Embedding);
}

at::Tensor BertStage::attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const Dropout masks = block_dropout(index, batch);
  const QueryKeyValue projections = {linear(hidden, layer.query), linear(hidden, layer.key),
                                     linear(hidden, layer.value)};
  const at::Tensor attended = masked_attention(projections, mask, heads_, masks);
  return hidden + dropout(linear(attended, layer.attention_output), masks, DropoutSite::AttentionOutput);
}

at::Tensor BertStage::feed_forward(std::size_t index, const at::Tensor& sum, const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const Dropout masks = block_dropout(index, batch);
  const at::Tensor middle = layer_norm(sum, layer.attention_norm);
  const at::Tensor inner = gelu(linear(middle, layer.intermediate), Gelu::Exact);
  const at::Tensor outer = dropout(linear(inner, layer.output), masks, DropoutSite::FeedForwardOutput);
  return layer_norm(middle + outer, layer.output_norm);
}

at::Tensor BertStage::transform(const at::Tensor& hidden) const {
  return layer_norm(gelu(linear(hidden, head_.transform), Gelu::Exact), head_.transform_norm);
}

at::Tensor BertStage::logits(const at::Tensor& hidden) const { return linear(transform(hidden), head_.decoder); }

at::Tensor BertStage::sentence_logits(const at::Tensor& hidden) const {
  const at::Tensor first_token = hidden.select(/*dim=*/1, 0).clone();  // a view would keep all tokens until W
  return linear(at::tanh(linear(first_token, head_.pooler)), head_.seq_relationship);
}

at::Tensor BertStage::loss(const at::Tensor& hidden, const MicroBatch& batch) const {
  const at::Tensor targets = batch.targets.flatten();
  const at::Tensor places = batch.target_indices.defined() ? batch.target_indices : target_indices(targets);
  const at::Tensor masked = transform(hidden.flatten(0, 1).index_select(0, places));
  // A separate statement: autograd follows the order of evaluation, which compilers choose for operands.
  const at::Tensor sentence_loss =
      cross_entropy_sum(sentence_logits(hidden), batch.next_sentence) * batch.sentence_loss_scale;
  return linear_cross_entropy(masked, head_.decoder, targets.index_select(0, places), batch.token_loss_scale) +
         sentence_loss;
}

}  // namespace chimera
