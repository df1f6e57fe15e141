#pragma once

// Optimizers: AdamW, SGD and LAMB. Each updates the parameters of a rank in place and exposes its state as named
// tensors, which checkpoints store and replacements of lost ranks receive. sharded_optimizer.h divides an optimizer
// over the replicas of a stage.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/optimizer_options.h"
#include "model/parameter_group.h"

namespace chimera {

/// Returns the factor that limits the global norm to `clip` (0: no limit).
[[nodiscard]] double clip_factor(double norm, double clip);

struct OptimizerTensor {
  std::string parameter;
  std::string kind;  ///< `first_moment` or `second_moment`
  at::Tensor value;  ///< own memory, in the parameter's shape
};

/// Updates parameters in place by gradients times a (clipping) factor; may change the gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(double learning_rate, double gradient_factor) = 0;
  [[nodiscard]] virtual std::int64_t state_bytes() const = 0;
  /// Returns this rank's state; writing into the tensors restores it.
  [[nodiscard]] virtual std::vector<OptimizerTensor> state() const = 0;
  /// Sets the number of completed steps.
  virtual void set_steps(std::int64_t steps) = 0;
};

/// Creates AdamW with decoupled decay (Loshchilov and Hutter, ICLR'19; ATen's fused kernel), SGD with the same decay,
/// or LAMB (You et al., ICLR'20, algorithm 2). LAMB multiplies a tensor's AdamW step, including decay, by the ratio of
/// the tensor's norm to the step's (1 if either is 0).
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<Parameter>& parameters);
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<ParameterGroup*>& trained);

}  // namespace chimera
