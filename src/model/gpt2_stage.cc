#include "model/gpt2_stage.h"

#include <ATen/ATen.h>

#include "model/embedding.h"
#include "model/linear_cross_entropy.h"

namespace chimera {
namespace {

constexpr auto kGpt2Layout = WeightLayout::InOut;

}  // namespace

Gpt2Stage::Gpt2Stage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
                     const TiedLeaves& tied, at::ScalarType compute)
    : TransformerStage(layers, std::move(parameters), tied, compute), heads_(config.heads) {
  const double epsilon = norm_epsilon_of(config);
  if (layers.embedding) {
    wte_ = tied.embedding.defined() ? tied.embedding : parameter("wte.weight");
    wpe_ = parameter("wpe.weight");
  }
  for (std::int64_t layer = layers.first_layer; layer < layers.end_layer; ++layer) {
    blocks_.push_back(block_named("h." + std::to_string(layer), epsilon));
  }
  if (layers.head) {
    ln_f_ = layer_norm_named("ln_f", epsilon);
    lm_head_ = {tied.head.defined() ? for_compute(tied.head) : weight("lm_head.weight"), {}, WeightLayout::OutIn};
  }
}

Gpt2Stage::Block Gpt2Stage::block_named(const std::string& name, double epsilon) {
  return {layer_norm_named(name + ".ln_1", epsilon),        linear_named(name + ".attn.c_attn", kGpt2Layout),
          linear_named(name + ".attn.c_proj", kGpt2Layout), layer_norm_named(name + ".ln_2", epsilon),
          linear_named(name + ".mlp.c_fc", kGpt2Layout),    linear_named(name + ".mlp.c_proj", kGpt2Layout)};
}

at::Tensor Gpt2Stage::embed(const MicroBatch& batch) const {
  const at::Tensor sum = add_positions(token_embedding(wte_, batch.tokens), wpe_, first_position(batch));
  return dropout(sum.to(compute_type()), batch.dropout, DropoutSite::Embedding);
}

at::Tensor Gpt2Stage::attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const Dropout masks = block_dropout(index, batch);
  const auto projections = linear(layer_norm(hidden, layer.ln_1), layer.c_attn).chunk(3, /*dim=*/2);
  const QueryKeyValue seen = with_earlier(index, {projections[0], projections[1], projections[2]}, batch);
  const at::Tensor attended = causal_attention(seen, heads_, masks, mask);
  return hidden + dropout(linear(attended, layer.attn_c_proj), masks, DropoutSite::AttentionOutput);
}

at::Tensor Gpt2Stage::feed_forward(std::size_t index, const at::Tensor& sum, const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const at::Tensor inner = gelu(linear(layer_norm(sum, layer.ln_2), layer.c_fc), Gelu::Tanh);
  const Dropout masks = block_dropout(index, batch);
  return sum + dropout(linear(inner, layer.mlp_c_proj), masks, DropoutSite::FeedForwardOutput);
}

at::Tensor Gpt2Stage::logits(const at::Tensor& hidden) const { return linear(layer_norm(hidden, ln_f_), lm_head_); }

at::Tensor Gpt2Stage::loss(const at::Tensor& hidden, const MicroBatch& batch) const {
  const at::Tensor states = layer_norm(hidden, ln_f_).flatten(0, 1);
  return linear_cross_entropy(states, lm_head_, batch.targets.flatten(), batch.token_loss_scale);
}

}  // namespace chimera
