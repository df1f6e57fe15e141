#include "model/layers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "core/error.h"

namespace chimera {
namespace {

/// [b, L, H] -> [b, heads, L, H / heads], the shape that attention works on.
at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

/// The inverse of split_heads.
at::Tensor join_heads(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

at::Tensor attention(const QueryKeyValue& projections, std::int64_t heads, const std::optional<at::Tensor>& mask,
                     bool causal) {
  constexpr double kNoDropout = 0;
  return join_heads(at::scaled_dot_product_attention(split_heads(projections.query, heads),
                                                     split_heads(projections.key, heads),
                                                     split_heads(projections.value, heads), mask, kNoDropout, causal));
}

void check_below(const at::Tensor& values, std::int64_t vocabulary, const char* what) {
  const auto largest = values.max().item<std::int64_t>();
  if (largest < vocabulary) return;
  throw ConfigError(
      fmt::format("{} {} lies outside the model's vocabulary of {}; choose a larger vocabulary or other "
                  "data",
                  what, largest, vocabulary));
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& layer) {
  return at::layer_norm(input, layer.weight.sizes(), layer.weight, layer.bias, layer.epsilon);
}

at::Tensor gelu(const at::Tensor& input, Gelu kind) { return at::gelu(input, kind == Gelu::Tanh ? "tanh" : "none"); }

at::Tensor causal_attention(const QueryKeyValue& projections, std::int64_t heads) {
  return attention(projections, heads, std::nullopt, /*causal=*/true);
}

at::Tensor masked_attention(const QueryKeyValue& projections, const at::Tensor& mask, std::int64_t heads) {
  std::optional<at::Tensor> keys;
  if (mask.defined()) keys = mask.view({mask.size(0), 1, 1, mask.size(1)});
  return attention(projections, heads, keys, /*causal=*/false);
}

at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens) {
  check_below(tokens, table.size(0), "token");
  return at::embedding(table, tokens);
}

at::Tensor position_embedding(const at::Tensor& table, std::int64_t length) {
  if (length > table.size(0)) {
    throw ConfigError(
        fmt::format("a sequence of {} tokens is longer than the model's {} positions", length, table.size(0)));
  }
  return table.narrow(0, 0, length);
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const std::int64_t vocabulary = logits.size(-1);
  check_below(targets, vocabulary, "target");
  const at::ScalarType dtype = at::promote_types(logits.scalar_type(), at::kFloat);
  return at::cross_entropy_loss(logits.reshape({-1, vocabulary}).to(dtype), targets.reshape({-1}), {},
                                at::Reduction::Sum, kIgnored);
}

}  // namespace chimera
