#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <cstdint>

// The words of core/random_words.h where tensors lie, so that masks need not travel.

// Dropout whose masks are functions of (seed, step, sample, layer, site) alone: the same whatever the schedule, the
// partition, threads or processes, and again the same when a forward is recomputed.

// Dropout as a module of a user's model, with the masks of model/dropout.h.

namespace chimera {

/// The masks of several samples: sample s has the sequence (key, {step, first_sample + s, place}).
struct WordSequences {
  std::uint64_t key = 0;
  std::uint32_t step = 0;
  std::uint32_t first_sample = 0;
  std::uint32_t place = 0;
};

/// Words 0 .. count - 1 of the sequences of `samples` samples, [samples, count] int64, made on `device` by its integer
/// arithmetic: those of random_words() in every bit. Some 130 kernels over a quarter of the words each, whatever their
/// number; nobody waits for them.
[[nodiscard]] at::Tensor device_words(const WordSequences& sequences, std::int64_t samples, std::int64_t count,
                                      at::Device device);

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

/// While it lives, the KeyedDropout modules that run on this thread take their masks from here: those of one layer's
/// forward on one micro-batch.
class DropoutScope {
 public:
  /// `masks`: of the micro-batch; its probability is not used. `layer`: global, from 0.
  DropoutScope(const Dropout& masks, std::int64_t layer);
  ~DropoutScope();
  DropoutScope(const DropoutScope&) = delete;
  DropoutScope& operator=(const DropoutScope&) = delete;

 private:
  friend class KeyedDropoutImpl;
  Dropout masks_;
  std::int64_t next_ = 0;  // modules that have run
  DropoutScope* before_;
};

/// In place of torch::nn::Dropout: sets each element of its input [b, ...], b samples, to 0 with the given probability
/// and divides the others by 1 - probability. The mask is a function of (seed, step, sample, layer, which KeyedDropout
/// of the layer), hence the same for every schedule, partition and transport, and again when a forward is recomputed.
/// Does nothing after eval(). Throws Error where no stage is running, ConfigError for the 257th in a layer.
class KeyedDropoutImpl : public torch::nn::Module {
 public:
  /// Throws ConfigError unless 0 <= probability < 1.
  explicit KeyedDropoutImpl(double probability = 0.5);
  at::Tensor forward(const at::Tensor& input);

 private:
  double probability_;
};
TORCH_MODULE(KeyedDropout);

}  // namespace chimera
