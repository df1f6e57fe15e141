#include "oracle/model.h"

#include <cmath>
#include <limits>

#include "oracle/random.h"

namespace oracle {
namespace {

// ---- weights before the first step

class Initial {
 public:
  Initial(Weights& weights, std::uint64_t seed) : weights_(weights), seed_(seed) {}

  void normal(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation = 0.02) {
    const Random random(seed_, name);
    std::vector<double> values;
    for (std::int64_t i = 0; i < rows * columns; ++i)
      values.push_back(deviation * random.normal(static_cast<std::uint64_t>(i)));
    weights_[name] = at::tensor(values, at::kDouble).reshape({rows, columns});
  }
  void zeros(const std::string& name, std::int64_t size) { weights_[name] = at::zeros({size}, at::kDouble); }
  void ones(const std::string& name, std::int64_t size) { weights_[name] = at::ones({size}, at::kDouble); }
  void layer_norm(const std::string& name, std::int64_t size) {
    ones(name + ".weight", size);
    zeros(name + ".bias", size);
  }
  /// BERT stores weights as [out, in], GPT-2 as [in, out].
  void linear_out_in(const std::string& name, std::int64_t in, std::int64_t out) {
    normal(name + ".weight", out, in);
    zeros(name + ".bias", out);
  }
  void linear_in_out(const std::string& name, std::int64_t in, std::int64_t out, double deviation = 0.02) {
    normal(name + ".weight", in, out, deviation);
    zeros(name + ".bias", out);
  }

 private:
  Weights& weights_;
  std::uint64_t seed_;
};

std::string gpt2_layer(std::int64_t layer) { return "h." + std::to_string(layer); }
std::string llama_layer(std::int64_t layer) { return "model.layers." + std::to_string(layer); }
std::string bert_layer(std::int64_t layer) { return "bert.encoder.layer." + std::to_string(layer); }

void initial_gpt2(const Architecture& a, Initial& initial) {
  const std::int64_t h = a.hidden;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(a.layers));
  initial.normal("wte.weight", a.vocabulary, h);
  initial.normal("wpe.weight", a.positions, h);
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    const std::string name = gpt2_layer(layer);
    initial.layer_norm(name + ".ln_1", h);
    initial.linear_in_out(name + ".attn.c_attn", h, 3 * h);
    initial.linear_in_out(name + ".attn.c_proj", h, h, residual);
    initial.layer_norm(name + ".ln_2", h);
    initial.linear_in_out(name + ".mlp.c_fc", h, 4 * h);
    initial.linear_in_out(name + ".mlp.c_proj", 4 * h, h, residual);
  }
  initial.layer_norm("ln_f", h);
  if (!a.tied) initial.normal("lm_head.weight", a.vocabulary, h);
}

void initial_bert(const Architecture& a, Initial& initial) {
  const std::int64_t h = a.hidden;
  initial.normal("bert.embeddings.word_embeddings.weight", a.vocabulary, h);
  initial.normal("bert.embeddings.position_embeddings.weight", a.positions, h);
  initial.normal("bert.embeddings.token_type_embeddings.weight", 2, h);
  initial.layer_norm("bert.embeddings.LayerNorm", h);
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    const std::string name = bert_layer(layer);
    for (const char* part :
         {".attention.self.query", ".attention.self.key", ".attention.self.value", ".attention.output.dense"}) {
      initial.linear_out_in(name + part, h, h);
    }
    initial.layer_norm(name + ".attention.output.LayerNorm", h);
    initial.linear_out_in(name + ".intermediate.dense", h, 4 * h);
    initial.linear_out_in(name + ".output.dense", 4 * h, h);
    initial.layer_norm(name + ".output.LayerNorm", h);
  }
  initial.linear_out_in("bert.pooler.dense", h, h);
  initial.linear_out_in("cls.predictions.transform.dense", h, h);
  initial.layer_norm("cls.predictions.transform.LayerNorm", h);
  if (!a.tied) initial.normal("cls.predictions.decoder.weight", a.vocabulary, h);
  initial.zeros("cls.predictions.bias", a.vocabulary);
  initial.linear_out_in("cls.seq_relationship", h, 2);
}

void initial_llama(const Architecture& a, Initial& initial) {
  const std::int64_t h = a.hidden;
  const std::int64_t shared = a.key_value_heads * h / a.heads;
  initial.normal("model.embed_tokens.weight", a.vocabulary, h);
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    const std::string name = llama_layer(layer);
    initial.ones(name + ".input_layernorm.weight", h);
    initial.normal(name + ".self_attn.q_proj.weight", h, h);
    initial.normal(name + ".self_attn.k_proj.weight", shared, h);
    initial.normal(name + ".self_attn.v_proj.weight", shared, h);
    initial.normal(name + ".self_attn.o_proj.weight", h, h);
    initial.ones(name + ".post_attention_layernorm.weight", h);
    initial.normal(name + ".mlp.gate_proj.weight", 3 * h, h);
    initial.normal(name + ".mlp.up_proj.weight", 3 * h, h);
    initial.normal(name + ".mlp.down_proj.weight", h, 3 * h);
  }
  initial.ones("model.norm.weight", h);
  if (!a.tied) initial.normal("lm_head.weight", a.vocabulary, h);
}

// ---- layers

class Layers {
 public:
  Layers(const Architecture& architecture, const Weights& weights) : a_(architecture), weights_(weights) {}

  [[nodiscard]] const at::Tensor& operator[](const std::string& name) const { return weights_.at(name); }
  [[nodiscard]] at::Tensor linear_out_in(const at::Tensor& x, const std::string& name) const {
    return x.matmul(weights_.at(name + ".weight").t()) + weights_.at(name + ".bias");
  }
  [[nodiscard]] at::Tensor linear_in_out(const at::Tensor& x, const std::string& name) const {
    return x.matmul(weights_.at(name + ".weight")) + weights_.at(name + ".bias");
  }
  [[nodiscard]] at::Tensor layer_norm(const at::Tensor& x, const std::string& name, double epsilon) const {
    const at::Tensor centred = x - x.mean(-1, /*keepdim=*/true);
    const at::Tensor variance = (centred * centred).mean(-1, /*keepdim=*/true);
    return centred / (variance + epsilon).sqrt() * weights_.at(name + ".weight") + weights_.at(name + ".bias");
  }
  /// query, key, value: [samples, sequence, hidden].
  [[nodiscard]] at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     bool causal) const {
    const auto by_head = [&](const at::Tensor& x) {
      return x.reshape({x.size(0), x.size(1), a_.heads, a_.hidden / a_.heads}).permute({0, 2, 1, 3});
    };
    const double size = static_cast<double>(a_.hidden) / static_cast<double>(a_.heads);
    at::Tensor scores = by_head(query).matmul(by_head(key).transpose(2, 3)) / std::sqrt(size);
    if (causal) {
      const std::int64_t length = scores.size(-1);
      scores = scores +
               at::full({length, length}, -std::numeric_limits<double>::infinity(), at::kDouble).triu(/*diagonal=*/1);
    }
    const at::Tensor exponentials = (scores - scores.amax(-1, /*keepdim=*/true)).exp();
    const at::Tensor probabilities = exponentials / exponentials.sum(-1, /*keepdim=*/true);
    return probabilities.matmul(by_head(value)).permute({0, 2, 1, 3}).reshape(query.sizes());
  }

 private:
  const Architecture& a_;
  const Weights& weights_;
};

at::Tensor gelu_by_tanh(const at::Tensor& x) {
  return 0.5 * x * (1 + (std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)).tanh());
}

at::Tensor gelu_by_erf(const at::Tensor& x) { return 0.5 * x * (1 + (x / std::sqrt(2.0)).erf()); }

/// Rows of a table by index.
at::Tensor look_up(const at::Tensor& table, const at::Tensor& rows) {
  return table.index_select(0, rows.flatten()).reshape({rows.size(0), rows.size(1), table.size(1)});
}

/// The mean of -log softmax(logits)[target] over the targets that are not -100.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor all = targets.flatten();
  const at::Tensor counted = (all != -100).nonzero().flatten();
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)}).index_select(0, counted);
  const at::Tensor chosen = rows.gather(1, all.index_select(0, counted).unsqueeze(1)).squeeze(1);
  return (rows.logsumexp(1) - chosen).mean();
}

at::Tensor gpt2_loss(const Architecture& a, const Layers& layers, const Batch& batch) {
  constexpr double kEpsilon = 1e-5;
  at::Tensor x = look_up(layers["wte.weight"], batch.tokens) + layers["wpe.weight"].slice(0, 0, batch.tokens.size(1));
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    const std::string name = gpt2_layer(layer);
    const at::Tensor qkv = layers.linear_in_out(layers.layer_norm(x, name + ".ln_1", kEpsilon), name + ".attn.c_attn");
    const auto part = [&](std::int64_t i) { return qkv.slice(2, i * a.hidden, (i + 1) * a.hidden); };
    x = x + layers.linear_in_out(layers.attention(part(0), part(1), part(2), /*causal=*/true), name + ".attn.c_proj");
    const at::Tensor inner = layers.linear_in_out(layers.layer_norm(x, name + ".ln_2", kEpsilon), name + ".mlp.c_fc");
    x = x + layers.linear_in_out(gelu_by_tanh(inner), name + ".mlp.c_proj");
  }
  const at::Tensor head = layers[a.tied ? "wte.weight" : "lm_head.weight"];
  return cross_entropy(layers.layer_norm(x, "ln_f", kEpsilon).matmul(head.t()), batch.targets);
}

/// Treats elements j and j + d/2 of each head as a complex number, rotated by 10000^(-2j/d) per position.
at::Tensor turned(const at::Tensor& x, std::int64_t heads) {
  const std::int64_t half = x.size(2) / heads / 2;
  const at::Tensor split = x.reshape({x.size(0), x.size(1), heads, 2, half});
  const at::Tensor frequencies = (at::arange(half, at::kDouble) * (-std::log(1e4) / static_cast<double>(half))).exp();
  const at::Tensor angles = at::arange(x.size(1), at::kDouble).outer(frequencies).unsqueeze(1);
  const at::Tensor numbers = at::complex(split.select(3, 0).contiguous(), split.select(3, 1).contiguous()) *
                             at::polar(at::ones_like(angles), angles);
  return at::stack({at::real(numbers), at::imag(numbers)}, 3).reshape(x.sizes());
}

at::Tensor llama_loss(const Architecture& a, const Layers& layers, const Batch& batch) {
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return x / ((x * x).mean(-1, /*keepdim=*/true) + 1e-5).sqrt() * layers[name + ".weight"];
  };
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return x.matmul(layers[name + ".weight"].t());
  };
  const auto for_every_head = [&](const at::Tensor& x) {
    const at::Tensor split = x.reshape({x.size(0), x.size(1), a.key_value_heads, -1});
    return split.repeat_interleave(a.heads / a.key_value_heads, 2).reshape({x.size(0), x.size(1), a.hidden});
  };
  at::Tensor x = look_up(layers["model.embed_tokens.weight"], batch.tokens);
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    const std::string name = llama_layer(layer);
    const std::string self = name + ".self_attn.";
    const at::Tensor read = norm(x, name + ".input_layernorm");
    const at::Tensor attended =
        layers.attention(turned(linear(read, self + "q_proj"), a.heads),
                         for_every_head(turned(linear(read, self + "k_proj"), a.key_value_heads)),
                         for_every_head(linear(read, self + "v_proj")), /*causal=*/true);
    x = x + linear(attended, self + "o_proj");
    const at::Tensor inner = norm(x, name + ".post_attention_layernorm");
    const at::Tensor gate = linear(inner, name + ".mlp.gate_proj");
    x = x + linear(gate / (1 + (-gate).exp()) * linear(inner, name + ".mlp.up_proj"), name + ".mlp.down_proj");
  }
  const at::Tensor head = layers[a.tied ? "model.embed_tokens.weight" : "lm_head.weight"];
  return cross_entropy(norm(x, "model.norm").matmul(head.t()), batch.targets);
}

at::Tensor bert_loss(const Architecture& a, const Layers& layers, const Batch& batch) {
  constexpr double kEpsilon = 1e-12;
  at::Tensor x = look_up(layers["bert.embeddings.word_embeddings.weight"], batch.tokens) +
                 look_up(layers["bert.embeddings.token_type_embeddings.weight"], batch.token_types) +
                 layers["bert.embeddings.position_embeddings.weight"].slice(0, 0, batch.tokens.size(1));
  x = layers.layer_norm(x, "bert.embeddings.LayerNorm", kEpsilon);
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    const std::string name = bert_layer(layer);
    const std::string self = name + ".attention.self.";
    const at::Tensor attended =
        layers.attention(layers.linear_out_in(x, self + "query"), layers.linear_out_in(x, self + "key"),
                         layers.linear_out_in(x, self + "value"), /*causal=*/false);
    x = layers.layer_norm(x + layers.linear_out_in(attended, name + ".attention.output.dense"),
                          name + ".attention.output.LayerNorm", kEpsilon);
    const at::Tensor inner = gelu_by_erf(layers.linear_out_in(x, name + ".intermediate.dense"));
    x = layers.layer_norm(x + layers.linear_out_in(inner, name + ".output.dense"), name + ".output.LayerNorm",
                          kEpsilon);
  }
  const at::Tensor transformed =
      layers.layer_norm(gelu_by_erf(layers.linear_out_in(x, "cls.predictions.transform.dense")),
                        "cls.predictions.transform.LayerNorm", kEpsilon);
  const at::Tensor decoder =
      layers[a.tied ? "bert.embeddings.word_embeddings.weight" : "cls.predictions.decoder.weight"];
  const at::Tensor pooled = layers.linear_out_in(x.slice(1, 0, 1).squeeze(1), "bert.pooler.dense").tanh();
  return cross_entropy(transformed.matmul(decoder.t()) + layers["cls.predictions.bias"], batch.targets) +
         cross_entropy(layers.linear_out_in(pooled, "cls.seq_relationship"), batch.second_is_other);
}

}  // namespace

Weights initial_weights(const Architecture& architecture, std::uint64_t seed) {
  Weights weights;
  Initial initial(weights, seed);
  switch (architecture.family) {
    case Family::Gpt2: initial_gpt2(architecture, initial); break;
    case Family::Bert: initial_bert(architecture, initial); break;
    case Family::Llama: initial_llama(architecture, initial); break;
  }
  for (auto& [name, weight] : weights) weight.requires_grad_();
  return weights;
}

at::Tensor mean_loss(const Architecture& architecture, const Weights& weights, const Batch& batch) {
  const Layers layers(architecture, weights);
  switch (architecture.family) {
    case Family::Gpt2: return gpt2_loss(architecture, layers, batch);
    case Family::Bert: return bert_loss(architecture, layers, batch);
    case Family::Llama: return llama_loss(architecture, layers, batch);
  }
  return {};
}

}  // namespace oracle
