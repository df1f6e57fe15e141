#pragma once

// Types of tensors in LibTorch and in safetensors files, and conversion between them in blocks.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>

#include "safetensors/element_type.h"

namespace chimera {

/// Returns the type in safetensors files. Throws Error if they do not have it.
[[nodiscard]] ElementType element_type(at::ScalarType type);

/// Returns the type of tensors. Throws Error unless it is floating-point.
[[nodiscard]] at::ScalarType floating_type(ElementType type);

/// Elements converted at a time, few enough to stay in a core's cache and below malloc()'s mmap threshold. Freeing a
/// mapped block raises this threshold, and the resulting holes cost a tenth of a model's memory.
inline constexpr std::int64_t kBlockOfElements = 1 << 13;
/// Calls `visit(first, count)` for each block in order; only the last block may be smaller.
void for_each_block(std::int64_t elements, const std::function<void(std::int64_t first, std::int64_t count)>& visit);

/// Converts to another floating-point type, on the CPU. Throws ConfigError, naming the tensor, if a finite value
/// becomes infinite in F16.
[[nodiscard]] at::Tensor convert(const at::Tensor& values, ElementType type, const std::string& tensor);

}  // namespace chimera
