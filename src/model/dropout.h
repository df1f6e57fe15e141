#pragma once
// Dropout whose masks are functions of (seed, step, sample, layer, site) alone: the same whatever the schedule, the
// partition, threads or processes, and again the same when a forward is recomputed.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

/// Where in a layer a mask is applied, as in GPT-2 and BERT; Llama has the same. The heads have none.
enum class DropoutSite : std::uint8_t {
  Embedding,               ///< the sum of the embeddings (BERT: after its layer norm); of layer 0
  AttentionProbabilities,  ///< after the softmax
  AttentionOutput,         ///< the output projection of attention, before it is added to the hidden states
  FeedForwardOutput,       ///< likewise of the feed-forward sub-layer
};

/// The masks of one micro-batch.
struct Dropout {
  double probability = 0;  ///< of an element to become 0, in [0, 1); 0: no dropout, as in validation
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  ///< index within the step of the micro-batch's first sample; the others follow it
  std::int64_t layer = 0;         ///< global, from 0

  [[nodiscard]] bool is_active() const { return probability > 0; }
  [[nodiscard]] Dropout in_layer(std::int64_t index) const;
};

/// `input` [b, ...], its elements set to 0 with the given probability and otherwise divided by 1 - probability; `input`
/// itself where dropout is not active. Keeps no mask: backward makes it again, at 1 to 2 ns an element. Where an
/// element stands within its sample decides, not where the sample stands in the micro-batch. Masks are made where the
/// input lies.
[[nodiscard]] at::Tensor dropout(const at::Tensor& input, const Dropout& masks, DropoutSite site);

}  // namespace chimera
