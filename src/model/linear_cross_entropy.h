#pragma once
// The last linear layer of a model fused with its loss. Letters in shapes: n tokens, H hidden width, V vocabulary.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "model/linear.h"
#include "model_config/footprint.h"

namespace chimera {

/// Returns `scale` times the sum over `targets` [n] of the cross entropy of linear(`hidden` [n, H], `head`), without
/// kIgnored targets (model/layers.h) -> []. Computes in at least float32. Throws ConfigError if a target on the CPU is
/// outside the vocabulary.
///
/// Logits exist for one chunk of tokens at a time (chunks_of() in model_config/footprint.h). The forward also computes
/// the gradient of `hidden` from them, and keeps it with the last chunk's logit gradient. I therefore repeats no
/// product with the matrix.
///
/// `logits_of_chunk` is the maximum number of logits in a chunk; default: kLogitsOfChunk or kLogitsOfGpuChunk.
///
/// The weight gradient (in B or W, queued as in linear()) recomputes the logits of all chunks but the last: up to one
/// more product beside three. A forward in no-grad mode computes only the loss. Backward can run only once.
[[nodiscard]] at::Tensor linear_cross_entropy(const at::Tensor& hidden, const Linear& head, const at::Tensor& targets,
                                              double scale, std::optional<std::int64_t> logits_of_chunk = std::nullopt);

}  // namespace chimera
