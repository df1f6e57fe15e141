#pragma once

// Optimizers: AdamW, SGD, LAMB and Muon (muon.h). Each updates the parameters of a rank in place and exposes its state
// as named tensors, which checkpoints store and replacements of lost ranks receive. sharded_optimizer.h divides an
// optimizer over the replicas of a stage.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/optimizer_options.h"
#include "model/parameter_group.h"

namespace chimera {

/// Returns the factor for gradients of global norm `norm` that limits this norm to `clip` (0: no limit), at most 1.
[[nodiscard]] double clip_factor(double norm, double clip);

/// The optimizer state of one parameter, or a part of it.
struct OptimizerTensor {
  std::string parameter;  ///< name of the parameter
  std::string kind;       ///< `first_moment`, `second_moment` or `momentum`
  at::Tensor value;       ///< own memory, in the parameter's shape
};

/// Updates parameters in place. Made with the parameters of a rank, which it borrows.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates the parameters with their gradients times `gradient_factor`, which clips them (clip_factor()). May change
  /// the gradients.
  virtual void step(double learning_rate, double gradient_factor) = 0;
  /// Makes the update of step(), with the same bits, without other ranks: for a rank that lost them between its
  /// gradients and its update. Not for sharded optimizers.
  virtual void step_alone(double learning_rate, double gradient_factor) { step(learning_rate, gradient_factor); }
  /// Returns the bytes of this rank's state.
  [[nodiscard]] virtual std::int64_t state_bytes() const = 0;
  /// Returns this rank's state. To restore a state, the caller copies it into these tensors.
  [[nodiscard]] virtual std::vector<OptimizerTensor> state() const = 0;
  /// Sets the number of completed steps, when a state is restored.
  virtual void set_steps(std::int64_t steps) = 0;
};

/// Adds numbers in place over the ranks that have the parts of a parameter (Parameter::whole_elements). Collective.
using SumOverParts = std::function<void(const at::Tensor&)>;

/// Creates AdamW with decoupled decay (Loshchilov and Hutter, ICLR'19; ATen's fused kernel), SGD with the same decay,
/// or LAMB (You et al., ICLR'20, algorithm 2); not Muon, which make_optimizer() creates. LAMB multiplies a tensor's
/// AdamW step, including decay, by the ratio of the whole tensor's norm to the step's (1 if either is 0). It needs
/// `sum` if a parameter is a part; step() is then collective.
[[nodiscard]] std::unique_ptr<Optimizer> make_vector_optimizer(const OptimizerOptions& options,
                                                               const std::vector<Parameter>& parameters,
                                                               SumOverParts sum = {});

}  // namespace chimera
