#pragma once

// Finds the op that caused an infinite or NaN loss. Such a value spreads: each op that reads it makes another one.
// Workers therefore record which of their ops have non-finite results. If the loss of a step is not finite,
// StepReduction::find_non_finite() reports the op that comes first in the order in which values spread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "schedule/op.h"

namespace chimera {

/// Returns whether all elements are finite. Always returns true for a tensor on a GPU, to avoid waiting for it.
[[nodiscard]] bool all_finite(const at::Tensor& tensor);

/// Sets the first element to NaN, hidden from autograd, for tests that inject faults (core/fault_point.h).
void inject_nan(const at::Tensor& tensor);

/// An op, and the data-parallel group that runs it.
struct GroupOp {
  GroupId group;
  Op op;  ///< Forward or Backward; the replica is unknown
};

/// Returns the ops of a step (forward or backward, data-parallel group, micro-batch, stage) in the order in which a NaN
/// spreads: forwards before backwards, and a micro-batch's stages in execution order. The first non-finite op is the
/// cause.
[[nodiscard]] std::vector<GroupOp> spread_order(std::int64_t groups, std::int64_t micro_batches, std::int64_t stages);

/// Describes an op's result: "the output of stage 1 for micro-batch 3", "the loss of micro-batch 3 (stage 3)" for the
/// last stage, or "the gradient that stage 1 passes back for micro-batch 3".
[[nodiscard]] std::string describe_result(const Op& op, std::int64_t stages);

}  // namespace chimera
