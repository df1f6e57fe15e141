#include <ATen/ATen.h>
#include <algorithm>

#include "core/mapped.h"
#include "core/reject.h"
#include "model/llama_layers.h"
#include "model/transformer_stage.h"

// Llama (Touvron et al., 2023), Mistral, Qwen2 and Qwen3: rotary positions, RMS norm before each sub-layer, gated
// feed-forward, grouped-query attention. On a GPU with low-precision copies, the query, key and value matrices of a
// block are one matrix, and so are gate and up: one product instead of several.

namespace chimera {
namespace {

class LlamaStage final : public TransformerStage {
 public:
  explicit LlamaStage(TransformerParts parts) : TransformerStage(std::move(parts)) {
    if (layers().embedding) embedding_ = token_table("model.embed_tokens.weight");
    for (const std::string& name : block_names("model.layers.")) {
      const std::string attention = name + ".self_attn.";
      const auto head_norm = [&](const char* which) {
        return config().query_key_norm ? rms_norm_named(attention + which) : RmsNorm{};
      };
      blocks_.push_back(
          {.input_norm = rms_norm_named(name + ".input_layernorm"),
           // One matrix for all three requires that each rank has the keys of its own queries only; and a norm per head
           // needs queries and keys apart.
           .query_key_value = packed_layers({attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                                            !config().query_key_norm && divides_keys()),
           .query_norm = head_norm("q_norm"),
           .key_norm = head_norm("k_norm"),
           .attention_output = linear_named(attention + "o_proj"),
           .post_attention_norm = rms_norm_named(name + ".post_attention_layernorm"),
           .gate_and_up = packed_layers({name + ".mlp.gate_proj", name + ".mlp.up_proj"}),
           .down = linear_named(name + ".mlp.down_proj")});
    }
    if (layers().head) {
      norm_ = rms_norm_named("model.norm");
      set_output("lm_head.weight");
    }
  }

 private:
  struct Block {
    RmsNorm input_norm;
    std::vector<Linear> query_key_value;  // three layers, or one for all; always three with query_norm
    RmsNorm query_norm;                   // per head; undefined without query_key_norm
    RmsNorm key_norm;                     // per head; undefined without query_key_norm
    Linear attention_output;
    RmsNorm post_attention_norm;
    std::vector<Linear> gate_and_up;  // two layers, or one for both
    Linear down;
  };

  at::Tensor embed(const MicroBatch& batch) const override {
    const at::Tensor embedded = token_embedding(embedding_, batch.tokens, vocabulary());
    return token_dropout(embedded.to(compute_type()), batch.dropout, DropoutSite::Embedding);
  }

  at::Tensor attention(std::size_t index, const at::Tensor& hidden, const AttentionLimits& limits,
                       const MicroBatch& batch) const override {
    const Block& layer = blocks_[index];
    const Dropout masks = block_dropout(index, batch);
    const LinearInput normed = remade(index, {hidden}, [this, &layer](const TensorVector& from) {
      return enter(rms_norm(from[0], layer.input_norm));
    });
    const QueryKeyValue seen = with_earlier(index, projections(layer, normed, batch.first_token), batch);
    const at::Tensor attended = causal_attention(seen, heads(), masks, limits);
    return hidden + token_dropout(row_linear(attended, layer.attention_output), masks, DropoutSite::AttentionOutput);
  }

  at::Tensor feed_forward(std::size_t index, const at::Tensor& sum, const MicroBatch& batch) const override {
    const Block& layer = blocks_[index];
    TensorVector projected;
    {
      const LinearInput normed = remade(index, {sum}, [this, &layer](const TensorVector& from) {
        return enter(rms_norm(from[0], layer.post_attention_norm));
      });
      for (const Linear& each : layer.gate_and_up) projected.push_back(linear(normed, each));
    }
    const LinearInput inner = remade(index, std::move(projected), [](const TensorVector& from) {
      return from.size() == 1 ? swiglu(from[0]) : swiglu(from[0], from[1]);
    });
    const Dropout masks = block_dropout(index, batch);
    return sum + token_dropout(row_linear(inner, layer.down), masks, DropoutSite::FeedForwardOutput);
  }

  at::Tensor final_states(const at::Tensor& hidden) const override { return rms_norm(hidden, norm_); }

  RmsNorm rms_norm_named(const std::string& name) {
    return {.weight = weight(name + ".weight"), .epsilon = norm_epsilon_of(config())};
  }

  /// Returns the linear layers `names`: as one layer if `may_pack`, they have no bias, and packed_for_compute() packs
  /// their matrices.
  std::vector<Linear> packed_layers(const std::vector<std::string>& names, bool may_pack = true) {
    std::vector<at::Tensor> matrices;
    for (const std::string& name : names) {
      may_pack = may_pack && !has_parameter(name + ".bias");
      matrices.push_back(parameter(name + ".weight"));
    }
    // packed_for_compute() declines on the CPU, in full precision, and if the gradients do not lie side by side. The
    // layers then stay apart; results differ only in rounding.
    if (const at::Tensor matrix = may_pack ? packed_for_compute(matrices) : at::Tensor(); matrix.defined())
      return {{.weight = matrix}};
    return mapped<Linear>(names, [this](const std::string& name) { return linear_named(name); });
  }

  /// Returns whether this rank has only the keys and values of its own queries.
  [[nodiscard]] bool divides_keys() const {
    return tensor() == nullptr || key_value_heads_of(config()) >= tensor()->place().ranks;
  }

  /// Returns the keys or values of this rank's queries, of those of all heads.
  [[nodiscard]] at::Tensor own_keys(const at::Tensor& all) const {
    if (divides_keys()) return all;
    const TensorPlace place = tensor()->place();
    // More ranks than such heads: neighboring ranks share one. With 8 ranks and 2 heads, ranks 0 to 3 use head 0.
    const std::int64_t head = place.rank * key_value_heads_of(config()) / place.ranks;
    return all.narrow(2, head * head_size_of(config()), head_size_of(config())).contiguous();
  }

  /// Returns the projections of `normed` [b, L, H], with rotated queries and keys, at positions from `first` on.
  QueryKeyValue projections(const Block& layer, const LinearInput& normed, std::int64_t first) const {
    const std::vector<Linear>& layers = layer.query_key_value;
    if (layers.size() == 3) {
      return {.query = positioned(linear(normed, layers[0]), layer.query_norm, first),
              .key = positioned(own_keys(linear(normed, layers[1])), layer.key_norm, first),
              .value = own_keys(linear(normed, layers[2]))};
    }
    // Columns of the product: queries, then keys, then values, each of this rank's heads.
    const std::int64_t query = heads() * head_size_of(config());
    const std::int64_t key = query * key_value_heads_of(config()) / config().heads;
    // Queries and keys turn together, in one kernel.
    const auto parts = linear(normed, layers[0]).split({query + key, key}, /*dim=*/2);
    const auto turned = positioned(parts[0], /*norm=*/{}, first).split({query, key}, /*dim=*/2);
    // A view would keep the whole product until the backward.
    const at::Tensor value = at::GradMode::is_enabled() ? parts[1].contiguous() : parts[1];
    return {.query = turned[0], .key = turned[1], .value = value};
  }

  /// Applies norm (if defined) and rotation to queries or keys, [b, L, heads * d], at positions from `first` on.
  at::Tensor positioned(const at::Tensor& projection, const RmsNorm& norm, std::int64_t first) const {
    // Positions count from the start of the sequence, also in slices and during generation.
    const RotaryTable table = table_of(first, first + projection.size(1), projection);
    if (!norm.weight.defined()) return rotate(projection, table);
    const at::Tensor heads = projection.unflatten(2, {-1, head_size_of(config())});
    return rotate(rms_norm(heads, norm).flatten(2), table);
  }

  /// Returns positions `first` .. `end` - 1 of the cached table. Throws ConfigError if `end` exceeds the model's
  /// positions or sliding window.
  RotaryTable table_of(std::int64_t first, std::int64_t end, const at::Tensor& hidden) const {
    if (end > config().positions)
      reject("a sequence of {} tokens is longer than the model's {} positions", end, config().positions);
    require_within_window(config(), end);
    // Grows rarely: a training run asks for the same length in each step.
    if (table_.length() < end) {
      // Doubled, because generation asks for one more position per token.
      const std::int64_t ahead = std::min(2 * table_.length(), config().positions);
      table_ = rotary_table(config(), std::max(end, ahead), hidden.options());
    }
    return table_.slice(first, end);
  }

  std::vector<Block> blocks_;
  at::Tensor embedding_;       // [V, H]; undefined if another stage has it
  RmsNorm norm_;               // undefined if another stage has it
  mutable RotaryTable table_;  // cache of table_of(); twice as long whenever it is too short
};

}  // namespace

std::unique_ptr<Stage> make_llama_stage(TransformerParts parts) {
  return std::make_unique<LlamaStage>(std::move(parts));
}

}  // namespace chimera
