#pragma once
// Updating the weights: AdamW, LAMB or SGD, and clipping.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/optimizer_options.h"
#include "model/parameter_group.h"

namespace chimera {

/// What gradients are multiplied by so that their global norm is at most `clip` (0: no limit).
[[nodiscard]] double clip_factor(double norm, double clip);

/// What an optimizer remembers of a parameter between steps.
struct OptimizerTensor {
  std::string parameter;
  std::string kind;  ///< `first_moment` or `second_moment`
  at::Tensor value;  ///< of the parameter's shape; its own memory
};

/// Updates parameters in place, from their gradients times a factor (of clipping); the gradients may be changed.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(double learning_rate, double gradient_factor) = 0;
  /// What it remembers between steps, in bytes of tensors.
  [[nodiscard]] virtual std::int64_t state_bytes() const = 0;
  /// The same by parameter, where it is kept on this rank: whoever goes on from other values writes these in place.
  [[nodiscard]] virtual std::vector<OptimizerTensor> state() const = 0;
  /// Goes on as after so many steps.
  virtual void set_steps(std::int64_t steps) = 0;
};

/// The optimizer of `options.kind`: AdamW with decoupled decay (Loshchilov and Hutter, ICLR'19; the fused kernel of
/// ATen); plain SGD with the same decay; or LAMB (You et al., ICLR'20, algorithm 2), which takes AdamW's step, decay
/// included, of each tensor times the ratio of its norm to the step's (1 where either is 0). LibTorch has no LAMB.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<Parameter>& parameters);
/// One optimizer of all parameters of these groups.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<ParameterGroup*>& trained);

}  // namespace chimera
