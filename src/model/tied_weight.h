#pragma once

#include <ATen/core/Tensor.h>

#include "model/parameter_group.h"

namespace chimera {

/// Leaves of the matrix [V, H] that is both token embedding and output matrix of a tied model. They share its memory,
/// but have separate gradients. Undefined for uses that the worker does not have.
struct TiedLeaves {
  at::Tensor embedding;
  at::Tensor head;
};

/// Uses of the tied matrix on a worker: the first stage of some replica, or the last.
struct TiedUses {
  bool embedding = false;
  bool head = false;
  [[nodiscard]] bool any() const { return embedding || head; }
};

/// The tied matrix on one worker. Each use adds its gradients to its own accumulator (the embedding to the first), so
/// all partitions add in the same order.
class TiedWeight final : public ParameterGroup {
 public:
  /// Requires at least one of `uses`.
  TiedWeight(Parameter weight, const TiedUses& uses);
  [[nodiscard]] const TiedLeaves& leaves() const { return leaves_; }

 private:
  TiedLeaves leaves_;
};

}  // namespace chimera
