#pragma once
// The types of numbers that --dtype names, and which of them this machine computes with at a bearable speed.

#include <ATen/core/Tensor.h>

#include <string>

#include "train/options.h"

namespace chimera {

/// The type of hidden states, their gradients and the messages that carry them: `dtype`, one of float32, float64 and
/// bfloat16. Weights, their gradients and the optimizer's state are float32 where that is wider.
[[nodiscard]] at::ScalarType compute_type(const std::string& dtype);

/// Whether this CPU multiplies bfloat16 itself, by AVX512-BF16 or AMX. Others emulate it, 10 to 500 times slower than
/// float32.
[[nodiscard]] bool has_native_bfloat16();

/// Throws ConfigError where the options ask for bfloat16 on a CPU that is not `native`, unless they insist.
void require_fast_numbers(const TrainOptions& options, bool native);

}  // namespace chimera
