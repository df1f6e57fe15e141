#pragma once
// In which tensors two checkpoints differ, and by how much.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/shard.h"

namespace chimera {

struct TensorDifference {
  std::string name;
  std::string reason;           ///< why no elements were compared: `only in the first`, `shape [2] and [3]`; else empty
  std::uint64_t elements = 0;   ///< of the tensor
  std::uint64_t differing = 0;  ///< of them, in any bit
  double largest = 0;           ///< |a - b|, of those that are numbers in both; NaN where one is none
  double relative = 0;          ///< |a - b| / |a| over the whole tensor
};

/// The tensors that differ, ascending by name. Types may differ: elements are compared as numbers. A few megabytes of
/// each are in memory on each of up to `threads` threads. Throws CheckpointError where a file cannot be read, or where
/// elements are no floating-point numbers.
[[nodiscard]] std::vector<TensorDifference> differing_tensors(const CheckpointTensors& first,
                                                              const CheckpointTensors& second, int threads);

}  // namespace chimera
