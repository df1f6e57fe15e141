#include <ATen/ATen.h>

#include "model/linear_cross_entropy.h"
#include "model/transformer_stage.h"

// BERT (Devlin et al., 2019): token types, layer norm after each sub-layer, masked tokens, sentence order. Trains all
// rows of the token embedding; Hugging Face by default skips the padding token's row.

namespace chimera {
namespace {

class BertStage final : public TransformerStage {
 public:
  explicit BertStage(TransformerParts parts) : TransformerStage(std::move(parts)) {
    if (layers().embedding) {
      const std::string name = "bert.embeddings.";
      embedding_ = {.words = token_table(name + "word_embeddings.weight"),
                    .positions = parameter(name + "position_embeddings.weight"),
                    .token_types = parameter(name + "token_type_embeddings.weight"),
                    .norm = layer_norm_named(name + "LayerNorm")};
    }
    for (const std::string& name : block_names("bert.encoder.layer.")) {
      blocks_.push_back({.query = linear_named(name + ".attention.self.query"),
                         .key = linear_named(name + ".attention.self.key"),
                         .value = linear_named(name + ".attention.self.value"),
                         .attention_output = linear_named(name + ".attention.output.dense"),
                         .attention_norm = layer_norm_named(name + ".attention.output.LayerNorm"),
                         .intermediate = linear_named(name + ".intermediate.dense"),
                         .output = linear_named(name + ".output.dense"),
                         .output_norm = layer_norm_named(name + ".output.LayerNorm")});
    }
    if (layers().head) {
      head_ = {.pooler = linear_named("bert.pooler.dense"),
               .transform = linear_named("cls.predictions.transform.dense"),
               .transform_norm = layer_norm_named("cls.predictions.transform.LayerNorm"),
               .seq_relationship = linear_named("cls.seq_relationship")};
      // BERT has a bias per token of the vocabulary, which is not tied; the matrix may be.
      set_output("cls.predictions.decoder.weight", weight("cls.predictions.bias"));
    }
  }

  [[nodiscard]] at::Tensor sentence_logits(const at::Tensor& hidden) const override {
    const at::Tensor first_token = hidden.select(/*dim=*/1, 0).clone();  // a view would keep all tokens until W
    return linear(at::tanh(linear(first_token, head_.pooler)), head_.seq_relationship);
  }

 private:
  struct Embedding {
    at::Tensor words;        // [V, H]
    at::Tensor positions;    // [positions, H]
    at::Tensor token_types;  // [2, H]
    LayerNorm norm;
  };
  struct Block {
    Linear query;
    Linear key;
    Linear value;
    Linear attention_output;
    LayerNorm attention_norm;
    Linear intermediate;
    Linear output;
    LayerNorm output_norm;
  };
  struct Head {
    Linear pooler;
    Linear transform;
    LayerNorm transform_norm;
    Linear seq_relationship;
  };

  at::Tensor embed(const MicroBatch& batch) const override {
    const at::Tensor words = token_embedding(embedding_.words, batch.tokens, vocabulary());
    // token_embedding() of a divided table returns only this rank's tokens if the group cuts tokens. So types and
    // positions, whose tables are whole, are looked up for these tokens only.
    const TensorRange own = own_tokens(batch.tokens.size(1));
    const at::Tensor types = token_embedding(embedding_.token_types, batch.token_types.narrow(1, own.first, own.count));
    const at::Tensor sum = add_positions(words + types, embedding_.positions, own.first);
    return token_dropout(layer_norm(sum.to(compute_type()), embedding_.norm), batch.dropout, DropoutSite::Embedding);
  }

  at::Tensor attention(std::size_t index, const at::Tensor& hidden, const AttentionLimits& limits,
                       const MicroBatch& batch) const override {
    const Block& layer = blocks_[index];
    const Dropout masks = block_dropout(index, batch);
    const at::Tensor input = enter(hidden);
    const QueryKeyValue projections = {
        .query = linear(input, layer.query), .key = linear(input, layer.key), .value = linear(input, layer.value)};
    const at::Tensor attended = masked_attention(projections, limits.mask, heads(), masks);
    return hidden + token_dropout(row_linear(attended, layer.attention_output), masks, DropoutSite::AttentionOutput);
  }

  at::Tensor feed_forward(std::size_t index, const at::Tensor& sum, const MicroBatch& batch) const override {
    const Block& layer = blocks_[index];
    const Dropout masks = block_dropout(index, batch);
    // BERT normalizes after each residual addition, so the norm of the attention sub-layer is computed here.
    // attention() can then run again (recomputation) without it.
    const at::Tensor middle = layer_norm(sum, layer.attention_norm);
    const auto again = [this, &layer](const TensorVector& from) {
      return enter(layer_norm(from[0], layer.attention_norm));
    };
    const LinearInput inner = remade(index, {linear(remade(index, enter(middle), {sum}, again), layer.intermediate)},
                                     [](const TensorVector& from) { return gelu(from[0], Gelu::Exact); });
    const at::Tensor outer = token_dropout(row_linear(inner, layer.output), masks, DropoutSite::FeedForwardOutput);
    return layer_norm(middle + outer, layer.output_norm);
  }

  at::Tensor final_states(const at::Tensor& hidden) const override {
    return layer_norm(gelu(linear(hidden, head_.transform), Gelu::Exact), head_.transform_norm);
  }

  /// Adds the losses of masked tokens and of sentence order.
  at::Tensor loss(const at::Tensor& own, const MicroBatch& batch) const override {
    // Masked tokens are few and anywhere, so every rank has all tokens here.
    const at::Tensor hidden = gather_tokens(own, tensor());
    const at::Tensor targets = batch.targets.flatten();
    const at::Tensor places = batch.target_indices.defined() ? batch.target_indices : target_indices(targets);
    // Only masked tokens have a loss: the head sees about 15 % of the hidden states.
    const at::Tensor masked = final_states(hidden.flatten(0, 1).index_select(0, places));
    // A separate statement: autograd follows the order of evaluation, which compilers choose for operands.
    const at::Tensor sentence_loss =
        cross_entropy_sum(sentence_logits(hidden), batch.next_sentence) * batch.sentence_loss_scale;
    return linear_cross_entropy(replicate_input(masked, tensor()), output(), targets.index_select(0, places),
                                batch.token_loss_scale, std::nullopt, vocabulary()) +
           sentence_loss;
  }

  Embedding embedding_;  // undefined if another stage has it
  std::vector<Block> blocks_;
  Head head_;  // undefined if another stage has it
};

}  // namespace

std::unique_ptr<Stage> make_bert_stage(TransformerParts parts) { return std::make_unique<BertStage>(std::move(parts)); }

}  // namespace chimera
