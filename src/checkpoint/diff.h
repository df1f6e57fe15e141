#pragma once

// Compares the tensors of two checkpoints element by element, for `chimera checkpoint diff`. The layouts may differ:
// tensors are found by name, on whichever rank saved them.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/shard.h"

namespace chimera {

struct TensorDifference {
  std::string name;
  /// not empty if elements were not compared: `only in the first`, `shape [2] and [3]`
  std::string reason;
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;  ///< elements that differ in any bit
  double largest = 0;           ///< maximum |a - b|; NaN if a difference is NaN
  double relative = 0;          ///< norm of a - b, relative to a
};

/// Returns the tensors that differ, by name. Elements are compared as numbers, so types may differ. Throws
/// CheckpointError if a file cannot be read or elements are not floating-point.
[[nodiscard]] std::vector<TensorDifference> compare_tensors(const CheckpointTensors& first,
                                                            const CheckpointTensors& second, int threads);

}  // namespace chimera
