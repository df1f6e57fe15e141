#pragma once
// LibTorch's types of elements and those of files, and what turns one into the other.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>

#include "safetensors/element_type.h"

namespace chimera {

/// Throws Error for a type that safetensors files do not have.
[[nodiscard]] ElementType element_type(at::ScalarType type);

/// The type of floating-point numbers in LibTorch. Throws Error for other types.
[[nodiscard]] at::ScalarType floating_type(ElementType type);

/// Elements that are converted at a time: their bytes stay in a core's cache, and are too few for malloc() to map them
/// by themselves. The first mapped block that is freed raises the size from which malloc() maps, and then the holes
/// that blocks leave between large tensors cost a tenth of a model's memory.
inline constexpr std::int64_t kBlockOfElements = 1 << 13;
/// Calls `visit(first, count)` for the blocks of so many elements, in order; only the last one may be smaller.
void for_each_block(std::int64_t elements, const std::function<void(std::int64_t first, std::int64_t count)>& visit);

/// `values` in another type of floating-point numbers. Throws ConfigError, naming the tensor, where a finite one
/// becomes infinite.
[[nodiscard]] at::Tensor converted(const at::Tensor& values, ElementType type, const std::string& tensor);

}  // namespace chimera
