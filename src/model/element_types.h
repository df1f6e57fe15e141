#pragma once
// LibTorch's types of elements and those of files.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "tensor_files/element_type.h"

namespace chimera {

/// Throws Error for a type that safetensors files do not have.
[[nodiscard]] ElementType element_type(at::ScalarType type);

/// Of floating-point numbers. Throws Error for other types.
[[nodiscard]] at::ScalarType floating_type(ElementType type);

/// `values` in another type of floating-point numbers. Throws ConfigError, naming the tensor, where a finite one
/// becomes infinite.
[[nodiscard]] at::Tensor converted(const at::Tensor& values, ElementType type, const std::string& tensor);

}  // namespace chimera
