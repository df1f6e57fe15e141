#pragma once
// The layers of a transformer as free functions on tensors. None of them writes to its arguments.
// Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, H hidden width, V vocabulary.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/dropout.h"
#include "model/linear.h"

namespace chimera {

/// A target at which no loss is taken.
inline constexpr std::int64_t kIgnored = -100;

/// Normalises the last dimension to mean 0 and variance 1, then scales and shifts.
struct LayerNorm {
  at::Tensor weight;   ///< [H]
  at::Tensor bias;     ///< [H]
  double epsilon = 0;  ///< added to the variance
};

/// The projections of multi-head attention, before they are cut into heads; [b, L, H] each.
struct QueryKeyValue {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

/// The activation of the feed-forward layer: GPT-2 approximates x * Phi(x) by a tanh.
enum class Gelu : std::uint8_t { Exact, Tanh };

/// input [..., H] -> [..., H].
[[nodiscard]] at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& layer);

[[nodiscard]] at::Tensor gelu(const at::Tensor& input, Gelu kind);

/// Each token attends to itself and those before it, with `masks` on the probabilities. -> [b, L, H].
[[nodiscard]] at::Tensor causal_attention(const QueryKeyValue& projections, std::int64_t heads,
                                          const Dropout& masks = {});

/// Each token attends to all tokens where `mask` ([b, L] bool; undefined: everywhere) is true. At least one token of
/// each sequence must be. -> [b, L, H].
[[nodiscard]] at::Tensor masked_attention(const QueryKeyValue& projections, const at::Tensor& mask, std::int64_t heads,
                                          const Dropout& masks = {});

/// Rows of `table` [V, H] for `tokens` [b, L] -> [b, L, H]. Throws ConfigError for a token outside the table,
/// where they are on the CPU.
[[nodiscard]] at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens);

/// The first `length` rows of `table` [positions, H] -> [L, H]. Throws ConfigError where the sequence is longer.
[[nodiscard]] at::Tensor position_embedding(const at::Tensor& table, std::int64_t length);

/// Sum over `targets` [...] of the cross entropy of `logits` [..., V], without those that are kIgnored -> [].
/// Computed in float32 where the logits are narrower. Throws ConfigError for a target outside the vocabulary, where
/// they are on the CPU.
[[nodiscard]] at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace chimera
