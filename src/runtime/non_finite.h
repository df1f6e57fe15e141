#pragma once

// Finds the op that caused an infinite or NaN loss. Such a value spreads: each op that reads it makes another one.
// Workers therefore record which of their ops have non-finite results. If the loss of a step is not finite,
// StepReduction::find_non_finite() reports the op that comes first in the order in which values spread (SpreadOrder).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "core/ids.h"
#include "schedule/op.h"

namespace chimera {

/// Returns whether all elements are finite. Always returns true for a tensor on a GPU, to avoid waiting for it.
[[nodiscard]] bool all_finite(const at::Tensor& tensor);

/// Sets the first element to NaN, hidden from autograd, for tests that inject faults (core/fault_point.h).
void inject_nan(const at::Tensor& tensor);

/// Numbers all (forward or backward, data-parallel group, micro-batch, stage) of a step in the order in which a NaN
/// spreads: forwards before backwards, and a micro-batch's stages in execution order. The lowest number is the cause.
class SpreadOrder {
 public:
  SpreadOrder(std::int64_t groups, std::int64_t micro_batches, std::int64_t stages)
      : groups_(groups), micro_batches_(micro_batches), stages_(stages) {}

  /// An op, and the data-parallel group that runs it.
  struct Place {
    GroupId group;
    Op op;  ///< Forward or Backward; the replica is unknown
  };
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(2 * groups_ * micro_batches_ * stages_); }
  /// Returns the number of an op, 0 .. size() - 1. All kinds other than Forward count as Backward. The micro-batch of
  /// `op` is numbered within the step.
  [[nodiscard]] std::size_t index(GroupId group, const Op& op) const;
  /// Returns the op with this number.
  [[nodiscard]] Place place(std::size_t index) const;

 private:
  std::int64_t groups_;
  std::int64_t micro_batches_;
  std::int64_t stages_;
};

/// Describes an op's result: "the output of stage 1 for micro-batch 3", "the loss of micro-batch 3 (stage 3)" for the
/// last stage, or "the gradient that stage 1 passes back for micro-batch 3".
[[nodiscard]] std::string describe_result(const Op& op, std::int64_t stages);

}  // namespace chimera
