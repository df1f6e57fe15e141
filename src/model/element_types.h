#pragma once
// LibTorch's types of elements and those of files.

#include <c10/core/ScalarType.h>

#include "tensor_files/element_type.h"

namespace chimera {

/// Throws Error for a type that safetensors files do not have.
[[nodiscard]] ElementType element_type(at::ScalarType type);

/// Of floating-point numbers. Throws Error for other types.
[[nodiscard]] at::ScalarType floating_type(ElementType type);

}  // namespace chimera
