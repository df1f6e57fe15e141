#pragma once

// Dropout whose masks do not depend on the order in which ops run. On the CPU, a mask depends only on seed, step,
// sample, layer and site (position in the layer). So it is the same for every schedule, partition and number of
// processes, if a micro-batch runs in slices of its tokens, and if a forward runs again (recomputation). On a GPU, the
// device's random generator makes the whole mask of a tensor from one seed, so the mask also depends on the micro-batch
// of the sample, its slices, and the kind of GPU. Chimera's models call dropout(); models of users contain KeyedDropout
// modules.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/scoped_value.h"

namespace chimera {

/// Position of a mask in a layer. The head of a model has no dropout.
enum class DropoutSite : std::uint8_t {
  Embedding,               ///< sum of the embeddings (BERT: after its layer norm); in layer 0
  AttentionProbabilities,  ///< after the softmax
  AttentionOutput,         ///< attention output, before the residual addition
  FeedForwardOutput,       ///< feed-forward output, before the residual addition
};

class GraphMasks;

/// Dropout settings of a micro-batch.
struct Dropout {
  double probability = 0;  ///< probability that an element becomes 0, in [0, 1); 0: no dropout
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  ///< index of the micro-batch's first sample within the step
  std::int64_t layer = 0;         ///< global, from 0
  std::int64_t first_token = 0;   ///< position of the first token in its sequence; above 0 only in slices
  std::int64_t sequence = 0;      ///< tokens of the sample that a slice is cut from; 0: tensors have whole samples
  std::int64_t first_head = 0;    ///< index of the first attention head; above 0 only with tensor parallelism
  GraphMasks* graph = nullptr;    ///< makes generators for device graphs; null: no graph is recorded. Borrowed

  [[nodiscard]] bool is_active() const { return probability > 0; }
  /// Returns a copy with `layer` set to `index`.
  [[nodiscard]] Dropout in_layer(std::int64_t index) const;
};

/// Random generators for the masks in device graphs: recorded kernels of a forward or backward
/// (runtime/recordings.h), which run again for each micro-batch. A graph keeps the addresses of a generator's seed
/// and offset, so each mask that a graph draws has a generator of its own.
class GraphMasks {
 public:
  /// Makes three generators for each mask that a forward outside of a graph has drawn before this call: for the
  /// forward, for a recomputation of attention, and for the backward. Before this call, next() returns generators that
  /// are not kept.
  void make_generators(at::Device device);
  /// Returns the generators, which each graph must register before its capture.
  [[nodiscard]] const std::vector<at::Generator>& generators() const { return generators_; }
  /// Returns the generator of the next mask, and notes the mask. Throws InternalError if there are too few generators.
  [[nodiscard]] at::Generator next(const Dropout& masks, DropoutSite site, at::Device device);
  /// Seeds all generators for the masks of another micro-batch. Call it before its forward is repeated.
  void reseed(const Dropout& batch);

 private:
  std::vector<at::Generator> generators_;
  std::vector<std::pair<std::int64_t, DropoutSite>> drawn_;  // layers and sites, in the order of next()
};

/// Sets elements of `input`, a tensor of b samples [b, ...], to 0 with the given probability and divides the others by
/// 1 - probability; returns `input` if dropout is not active. Keeps no mask: backward recomputes it, on the CPU at 1 to
/// 2 ns per element, on a GPU in one kernel. On the CPU a mask element does not depend on the sample's place in the
/// micro-batch. A slice of l tokens, or a tensor with some of the heads, gets its elements of the whole sample's mask.
/// `input` is then [b, l, ...], or [b, heads, l, first_token + l] at AttentionProbabilities.
[[nodiscard]] at::Tensor dropout(const at::Tensor& input, const Dropout& masks, DropoutSite site);

/// Scope of one layer's forward, which ModuleStage opens: KeyedDropout modules on this thread use its masks.
class DropoutScope : ScopedValue<DropoutScope*> {
 public:
  /// `masks` are the settings of the micro-batch; their probability is ignored, because each KeyedDropout has its own.
  /// `layer` is the index in the whole model, from 0.
  DropoutScope(const Dropout& masks, std::int64_t layer);

 private:
  friend class KeyedDropoutImpl;
  Dropout masks_;
  std::int64_t next_ = 0;  // module calls so far
};

/// Replacement for torch::nn::Dropout in layers of users, for input [b, ...] of b samples. Instead of a DropoutSite,
/// the mask depends on the number of calls in the layer's forward so far. Throws Error outside of a stage's forward
/// (except after eval()), ConfigError for the 257th call in a layer.
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
