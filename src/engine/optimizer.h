#pragma once
// Updating the weights: AdamW or SGD, and clipping.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/optimizer_options.h"
#include "model/parameter_group.h"

namespace chimera {

/// What gradients are multiplied by so that their global norm is at most `clip` (0: no limit).
[[nodiscard]] double clip_factor(double norm, double clip);

/// Updates parameters in place, from their gradients times a factor (of clipping); the gradients may be changed. Weight
/// decay acts on matrices (two or more dimensions), not on biases and norms.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(double learning_rate, double gradient_factor) = 0;
  /// What it remembers between steps, in bytes of tensors.
  [[nodiscard]] virtual std::int64_t state_bytes() const = 0;
};

/// AdamW with decoupled decay, b1 0.9, b2 0.999, epsilon 1e-8 (Loshchilov and Hutter, ICLR'19; the fused kernel of
/// ATen), or plain SGD, by `options.kind`.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<Parameter>& parameters);
/// Of all parameters of these groups.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<ParameterGroup*>& trained);

}  // namespace chimera
