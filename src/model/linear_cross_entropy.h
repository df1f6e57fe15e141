#pragma once
// The last linear layer of a model and its loss in one, without the logits of a whole micro-batch.
// Letters in shapes: n tokens, H hidden width, V vocabulary.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/linear.h"
#include "model_config/footprint.h"

namespace chimera {

/// `scale` times the sum over `targets` [n] of the cross entropy of linear(`hidden` [n, H], `head`), without those that
/// are kIgnored (model/layers.h) -> []. The loss and its gradient in the logits are computed in float32 where those are
/// narrower.
///
/// Logits are made for a chunk of tokens at a time (model_config/logit_chunks.h), and are never kept for more than one:
/// - The forward that a backward is to follow also computes the gradient of `hidden`, as the chunk's logits are at
///   hand; it keeps that and the gradient of the last chunk's logits. So I has nothing left to do, and the gradient
///   goes back without waiting for a second product with the matrix.
/// - The weight gradient, in B or W, through the current WeightGradients queue as in linear(), starts with the last
///   chunk and makes the logits of all others again: one product more of three, where there are many chunks, and none
///   where there is one.
/// A forward in no-grad mode (validation, the first one of a recomputed stage) computes the loss alone.
///
/// Backward runs once: it uses up what the forward kept. Throws ConfigError for a target outside the vocabulary, where
/// they are on the CPU.
[[nodiscard]] at::Tensor linear_cross_entropy(const at::Tensor& hidden, const Linear& head, const at::Tensor& targets,
                                              double scale, std::int64_t logits_of_chunk = kLogitsOfChunk);

}  // namespace chimera
