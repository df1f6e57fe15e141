#pragma once
// The bytes of a stage, and how the ops of a worker change the activations that it holds. The check of limits
// (--max-in-flight, --memory), the simulator and the planner use the same rule, each in its own unit, such as
// micro-batches or bytes.

#include "schedule/op.h"

namespace chimera {

/// Activations of a micro-batch, or of a slice of its tokens, at a stage, in any unit of memory. The default counts
/// micro-batches.
struct ActivationSizes {
  double whole = 1;     ///< While a backward runs
  double kept = 1;      ///< From the forward to the backward; less than `whole` if the stage recomputes
  double deferred = 1;  ///< From an input gradient (I) to its weight gradient (W)
};

/// Bytes of a stage. The last four members are per full micro-batch.
struct StageMemory {
  double weights = 0;  // of one weight version
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // bytes held from the forward to the end of the backward (B or I), with input and output
  // the stage's input: size of a message, and what recomputation keeps
  double boundary = 0;
  std::optional<double> deferred = std::nullopt;  // part of `activations` that W needs after I; empty: all
  // with several slices also held as long as `activations`: keys and values for the next slices, and their gradients
  double keys_and_values = 0;
};

/// Returns the bytes of a whole micro-batch's activations at a stage. A stage that recomputes keeps only its input and,
/// if micro-batches have slices, keys and values from forward to backward.
[[nodiscard]] inline ActivationSizes activation_bytes(const StageMemory& memory, bool has_slices, bool recomputes) {
  const double between_slices = has_slices ? memory.keys_and_values : 0;
  const double whole = memory.activations + between_slices;
  return {whole, recomputes ? memory.boundary + between_slices : whole, memory.deferred.value_or(whole)};
}

/// How an op changes the activations that its worker holds; negative: it frees them.
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
