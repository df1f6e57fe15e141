#pragma once
// Tensors where other ranks of the host can add to them.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

/// `count` zeros; on the CPU they lie in memory of their own that other processes can map (core/shared_memory.h), and
/// are reported to whoever counts LibTorch's memory.
[[nodiscard]] at::Tensor shared_zeros(std::int64_t count, const at::TensorOptions& options);

}  // namespace chimera
