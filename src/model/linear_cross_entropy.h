#pragma once
// The last linear layer of a model fused with its loss. Logits [n, V] would be the largest tensor of a model, so they
// exist for one chunk of tokens at a time (chunks_of() in model_config/footprint.h). Letters in shapes: n tokens, H
// hidden width, V vocabulary.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "model/linear.h"
#include "model/tensor_parallel.h"

namespace chimera {

/// Returns `scale` times the sum over `targets` [n] of the cross entropy of linear(`hidden` [n, H], `head`), without
/// kIgnored targets (model/layers.h) -> []. Computes in at least float32. Throws ConfigError if a target on the CPU is
/// outside the vocabulary.
///
/// The forward also computes the gradient of `hidden` from each chunk's logits, and keeps it. It also keeps the
/// gradient of the last chunk's logits. In backward, the input-gradient op (I) therefore only multiplies the kept
/// gradient by the gradient of the result. The weight-gradient op (W), which is queued as in linear(), recomputes the
/// logits of all chunks except the last. This adds up to one matrix product to the usual three. A forward in no-grad
/// mode computes only the loss. Backward can run only once.
///
/// With tensor parallelism (`part` has a group of ranks, tensor_parallel.h), `head` has only this rank's rows of the
/// vocabulary, and `hidden` and the loss are equal on all ranks. The ranks exchange, per token, the logarithm of each
/// rank's sum of exponentials and the logit of the target. The gradient of `hidden` is this rank's part of a sum
/// (enter_split()).
///
/// `logits_of_chunk` is the maximum number of logits in a chunk; default: kLogitsOfChunk or kLogitsOfGpuChunk.
[[nodiscard]] at::Tensor linear_cross_entropy(const at::Tensor& hidden, const Linear& head, const at::Tensor& targets,
                                              double scale, std::optional<std::int64_t> logits_of_chunk = std::nullopt,
                                              const VocabularyPart& part = {});

}  // namespace chimera
