#include "model/gpt2_stage.h"

#include <ATen/ATen.h>

#include "model/embedding.h"

namespace chimera {

Gpt2Stage::Gpt2Stage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
                     const TiedLeaves& tied, at::ScalarType compute)
    : TransformerStage(config, layers, std::move(parameters), tied, compute) {
  const auto projection = [this](const std::string& name) { return linear_named(name, WeightLayout::InOut); };
  if (layers.embedding) {
    wte_ = token_table("wte.weight");
    wpe_ = parameter("wpe.weight");
  }
  for (const std::string& name : block_names("h.")) {
    blocks_.push_back({.ln_1 = layer_norm_named(name + ".ln_1"),
                       .c_attn = projection(name + ".attn.c_attn"),
                       .attn_c_proj = projection(name + ".attn.c_proj"),
                       .ln_2 = layer_norm_named(name + ".ln_2"),
                       .c_fc = projection(name + ".mlp.c_fc"),
                       .mlp_c_proj = projection(name + ".mlp.c_proj")});
  }
  if (layers.head) {
    ln_f_ = layer_norm_named("ln_f");
    set_output("lm_head.weight");
  }
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
  const at::Tensor attended = causal_attention(seen, config().heads, masks, mask);
  return hidden + dropout(linear(attended, layer.attn_c_proj), masks, DropoutSite::AttentionOutput);
}

at::Tensor Gpt2Stage::feed_forward(std::size_t index, const at::Tensor& sum, const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const at::Tensor inner = gelu(linear(layer_norm(sum, layer.ln_2), layer.c_fc), Gelu::Tanh);
  const Dropout masks = block_dropout(index, batch);
  return sum + dropout(linear(inner, layer.mlp_c_proj), masks, DropoutSite::FeedForwardOutput);
}

}  // namespace chimera
