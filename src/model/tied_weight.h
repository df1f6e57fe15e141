#pragma once
// The matrix that is both token embedding and output matrix of a tied model.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "model/parameter_group.h"
#include "model_config/config.h"

namespace chimera {

/// The tied matrix [V, H] as its users see it: for each use a leaf that shares its memory and has a gradient of its
/// own. Undefined where there is no such use.
struct TiedLeaves {
  at::Tensor embedding;
  at::Tensor head;
};

/// Which uses a worker has for the tied matrix: it holds the first stage in some replica, or the last one.
struct TiedUses {
  bool embedding = false;
  bool head = false;
  [[nodiscard]] bool any() const { return embedding || head; }
};

/// The tied matrix on one worker: one tensor, whichever of both uses the worker has. Each use adds its gradients to an
/// accumulator of its own, the embedding to the first, so that both are added once and in one order, however the model
/// is cut.
class TiedWeight final : public ParameterGroup {
 public:
  /// `uses`: at least one.
  TiedWeight(Parameter weight, const TiedUses& uses);
  [[nodiscard]] const TiedLeaves& leaves() const { return leaves_; }

 private:
  TiedLeaves leaves_;
};

/// The tied matrix of the model with its initial values, which depend on seed and name only, in weight_type(dtype).
[[nodiscard]] std::unique_ptr<TiedWeight> make_tied_weight(const ModelConfig& config, const TiedUses& uses,
                                                           at::ScalarType dtype, std::uint64_t seed,
                                                           at::Device device = at::kCPU);

}  // namespace chimera
