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

/// The projections of multi-head attention, before they are cut into heads: [b, L, heads * d] of queries, d wide a
/// head; keys and values of as many heads or, where groups of query heads share one, of fewer.
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

/// Each token attends to itself and those before it, of the same document where there are several (`document_mask`, as
/// the function of that name makes it; undefined: all are of one), with `masks` on the probabilities; `heads`: of the
/// queries. Where there are more keys and values than queries, these belong to the last tokens, and all are of one
/// document. -> [b, L, heads * d].
[[nodiscard]] at::Tensor causal_attention(const QueryKeyValue& projections, std::int64_t heads,
                                          const Dropout& masks = {}, const at::Tensor& document_mask = {});

/// What is added to scores where `documents` [b, L] (int64) numbers the document of each token: 0 for a token itself
/// and those before it of its document, minus infinity elsewhere -> [b, 1, L, L] of `type`, the queries'. All blocks of
/// a stage share it, so that it is kept for the backward once.
[[nodiscard]] at::Tensor document_mask(const at::Tensor& documents, at::ScalarType type);

/// Each token attends to all tokens where `mask` ([b, L] bool; undefined: everywhere) is true. At least one token of
/// each sequence must be. -> [b, L, H].
[[nodiscard]] at::Tensor masked_attention(const QueryKeyValue& projections, const at::Tensor& mask, std::int64_t heads,
                                          const Dropout& masks = {});

/// Sum over `targets` [...] of the cross entropy of `logits` [..., V], without those that are kIgnored -> [].
/// Computed in float32 where the logits are narrower. Throws ConfigError for a target outside the vocabulary, where
/// they are on the CPU.
[[nodiscard]] at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

/// Where in `targets` [n] a loss is taken, ascending. On a GPU this waits for all that it has to do.
[[nodiscard]] at::Tensor target_places(const at::Tensor& targets);

/// Throws ConfigError where one of `values` is `vocabulary` or larger, naming it as `what`. Looks at values on the CPU
/// alone: elsewhere that would wait for all that the device has to do, and its kernels check.
void require_below(const at::Tensor& values, std::int64_t vocabulary, const char* what);

}  // namespace chimera
