#include <ATen/ATen.h>

#include "model/transformer_stage.h"

// GPT-2 (Radford et al., 2019): learned positions, layer norm before each sub-layer, fused query-key-value projection.

namespace chimera {
namespace {

class Gpt2Stage final : public TransformerStage {
 public:
  explicit Gpt2Stage(TransformerParts parts) : TransformerStage(std::move(parts)) {
    // GPT-2's files store matrices as [in, out] (Conv1D in Hugging Face). They are kept like this, so that checkpoints
    // and imports copy them unchanged.
    const auto projection = [this](const std::string& name) { return linear_named(name, WeightLayout::InOut); };
    if (layers().embedding) {
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
    if (layers().head) {
      ln_f_ = layer_norm_named("ln_f");
      set_output("lm_head.weight");
    }
  }

 private:
  struct Block {
    LayerNorm ln_1;
    Linear c_attn;  // H -> query, key, value
    Linear attn_c_proj;
    LayerNorm ln_2;
    Linear c_fc;
    Linear mlp_c_proj;
  };

  at::Tensor embed(const MicroBatch& batch) const override {
    // Position of this rank's first token: the slice's start in the sequence, and with sequence parallelism the rank's
    // start in the slice.
    const std::int64_t first = batch.first_token + own_tokens(batch.tokens.size(1)).first;
    const at::Tensor sum = add_positions(token_embedding(wte_, batch.tokens, vocabulary()), wpe_, first);
    return token_dropout(sum.to(compute_type()), batch.dropout, DropoutSite::Embedding);
  }

  at::Tensor attention(std::size_t index, const at::Tensor& hidden, const AttentionLimits& limits,
                       const MicroBatch& batch) const override {
    const Block& layer = blocks_[index];
    const Dropout masks = block_dropout(index, batch);
    // With tensor parallelism, c_attn has this rank's heads of all three (TensorCut::blocks), so three chunks are right
    // for each T.
    const auto projections = linear(remade(index, {hidden}, normed(layer.ln_1)), layer.c_attn).chunk(3, /*dim=*/2);
    const QueryKeyValue seen = with_earlier(index, {projections[0], projections[1], projections[2]}, batch);
    const at::Tensor attended = causal_attention(seen, heads(), masks, limits);
    return hidden + token_dropout(row_linear(attended, layer.attn_c_proj), masks, DropoutSite::AttentionOutput);
  }

  at::Tensor feed_forward(std::size_t index, const at::Tensor& sum, const MicroBatch& batch) const override {
    const Block& layer = blocks_[index];
    const LinearInput inner = remade(index, {linear(remade(index, {sum}, normed(layer.ln_2)), layer.c_fc)},
                                     [](const TensorVector& from) { return gelu(from[0], Gelu::Tanh); });
    const Dropout masks = block_dropout(index, batch);
    return sum + token_dropout(row_linear(inner, layer.mlp_c_proj), masks, DropoutSite::FeedForwardOutput);
  }

  at::Tensor final_states(const at::Tensor& hidden) const override { return layer_norm(hidden, ln_f_); }

  Remaking::Make normed(const LayerNorm& norm) const {
    return [this, &norm](const TensorVector& from) { return enter(layer_norm(from[0], norm)); };
  }

  std::vector<Block> blocks_;
  at::Tensor wte_;  // [V, H]; undefined without the embedding
  at::Tensor wpe_;  // [positions, H]; undefined without the embedding
  LayerNorm ln_f_;  // undefined without the head
};

}  // namespace

std::unique_ptr<Stage> make_gpt2_stage(TransformerParts parts) { return std::make_unique<Gpt2Stage>(std::move(parts)); }

}  // namespace chimera
