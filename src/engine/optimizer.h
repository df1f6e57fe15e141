#pragma once

// Optimizers: AdamW, SGD, LAMB and Muon (muon.h). Each updates the parameters of a rank in place and exposes its state
// as named tensors. Checkpoints store these tensors, and a process that replaces a lost rank receives them.
// sharded_optimizer.h divides an optimizer over the replicas of a stage.

#include <memory>

#include "engine/optimizer_options.h"
#include "model/parameter_group.h"
#include "model/tensor_parallel.h"

namespace chimera {

/// Returns the factor for gradients of global norm `norm` that limits this norm to `clip` (0: no limit), at most 1.
[[nodiscard]] double clip_factor(double norm, double clip);

/// The optimizer state of one parameter, or a part of it.
struct OptimizerTensor {
  std::string parameter;  ///< name of the parameter
  std::string kind;       ///< `first_moment`, `second_moment` or `momentum`
  at::Tensor value;  ///< The optimizer's own tensor, no copy, so writing restores it; shape of the part that it holds
};

/// Updates parameters in place, for one thread. It is made with the parameters of a rank, which it borrows.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates the parameters with their gradients times `gradient_factor`, which clips them (clip_factor()). May change
  /// the gradients.
  virtual void step(double learning_rate, double gradient_factor) = 0;
  /// Makes the update of step(), with the same bits, but without communication: for a rank that has lost other ranks
  /// after the gradients were summed. A sharded optimizer updates only its own parameters; call share() later.
  virtual void step_alone(double learning_rate, double gradient_factor) { step(learning_rate, gradient_factor); }
  /// Sends the parameters of a sharded optimizer to the ranks that do not update them. Collective.
  virtual void share() {}
  /// Returns this rank's state. To restore a state, the caller copies it into these tensors.
  [[nodiscard]] virtual std::vector<OptimizerTensor> state() const = 0;
  /// Sets the number of completed steps, when a state is restored.
  virtual void set_steps(std::int64_t steps) = 0;
};

/// Create an optimizer for these parameters, or for the parameters of these groups: AdamW with decoupled decay
/// (Loshchilov and Hutter, ICLR'19; ATen's fused kernel), SGD with the same decay, LAMB (You et al., ICLR'20, algorithm
/// 2), or Muon (make_muon()). LAMB multiplies the AdamW step of a parameter, including decay, by the ratio of the
/// parameter's norm to the step's norm (1 if either is 0). The optimizer borrows the parameters and `tensor`. If this
/// rank has only parts of parameters (Parameter::whole_elements > 0), LAMB and Muon need `tensor`, the ranks that share
/// its layers; step() is then collective over them. Optimizers that share their work between ranks have functions of
/// their own (sharded_optimizer.h, muon.h).
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<Parameter>& parameters,
                                                        TensorGroup* tensor = nullptr);
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<ParameterGroup*>& trained,
                                                        TensorGroup* tensor = nullptr);

/// Creates Muon (defined in muon.cc) for a single rank. It has one state tensor, `momentum`, for each parameter that it
/// updates, besides AdamW's state for the others.
[[nodiscard]] std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options,
                                                   const std::vector<Parameter>& parameters,
                                                   TensorGroup* tensor = nullptr);

}  // namespace chimera
