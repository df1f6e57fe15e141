#pragma once
// The types of numbers in LibTorch, and which of them this machine computes with at a bearable speed.

#include <ATen/core/Tensor.h>

#include "core/choices.h"

namespace chimera {

/// LibTorch's name of the type.
[[nodiscard]] at::ScalarType scalar_type(DataType type);

/// Whether this CPU multiplies bfloat16 itself, by AVX512-BF16 or AMX. Others emulate it, 10 to 500 times slower than
/// float32.
[[nodiscard]] bool has_native_bfloat16();

/// Throws ConfigError for bfloat16 on a CPU that is not `native`.
void require_fast_numbers(DataType dtype, bool native);

}  // namespace chimera
