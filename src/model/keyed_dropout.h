#pragma once
// Dropout as a module of a user's model, with the masks of model/dropout.h.

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "model/dropout.h"

namespace chimera {

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
