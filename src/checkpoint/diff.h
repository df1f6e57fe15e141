#pragma once

// Compares the tensors of two checkpoints element by element, for `chimera checkpoint diff`. The checkpoints may be
// from runs with different numbers of stages and ranks, because tensors are found by name, whichever rank wrote them.

#include "checkpoint/shard.h"

namespace chimera {

/// Difference of a tensor between two checkpoints.
struct TensorDifference {
  std::string name;
  /// why the elements could not be compared, such as `only in the first` or `shape [2] and [3]`; empty if they were
  std::string reason;
  std::uint64_t elements = 0;   ///< number of elements; 0, like the fields below, if they were not compared
  std::uint64_t differing = 0;  ///< elements that differ in any bit
  double largest = 0;           ///< maximum |a - b|; NaN if a difference is NaN
  double relative = 0;          ///< Euclidean norm of a - b, divided by the norm of a; infinite if a is zero
};

/// Returns the tensors that differ or cannot be compared, sorted by name. Elements are compared as float64 numbers, so
/// types may differ; NaNs with the same bits are equal. In TensorDifference, a is an element of `first`, and b of
/// `second`. Uses up to `threads` threads. Throws CheckpointError if a file cannot be read or elements are not
/// floating-point.
[[nodiscard]] std::vector<TensorDifference> compare_tensors(const CheckpointTensors& first,
                                                            const CheckpointTensors& second, int threads);

}  // namespace chimera
