#pragma once
// How the ops of a worker change the activations that it holds. The check of limits, the simulator and the forecast of
// memory use the same rule, in units of their own.

#include "schedule/op.h"

namespace chimera {

/// Activations of a micro-batch at a stage.
struct ActivationSizes {
  double whole = 1;     ///< While a backward runs
  double kept = 1;      ///< From the forward to the backward; less than `whole` if the stage recomputes
  double deferred = 1;  ///< From an input gradient (I) to its weight gradient (W)
};

struct ActivationChange {
  double at_start = 0;
  double at_end = 0;
};

/// Returns what an op adds at its start, and adds at its end (negative: frees). The changes of the ops of a micro-batch
/// at a stage sum to 0.
[[nodiscard]] constexpr ActivationChange activation_change(OpKind kind, const ActivationSizes& sizes) {
  switch (kind) {
    case OpKind::Forward: return {sizes.kept, 0};
    case OpKind::Backward: return {sizes.whole - sizes.kept, -sizes.whole};
    case OpKind::BackwardInput: return {sizes.whole - sizes.kept, sizes.deferred - sizes.whole};
    case OpKind::BackwardWeight: break;
  }
  return {0, -sizes.deferred};
}

}  // namespace chimera
