#pragma once
// Embedding layers: lookups in a table, with a backward that adds only to the rows used. Letters in shapes: b sequences
// of a micro-batch, L tokens of a sequence, H hidden width, V vocabulary (rows of the table).

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

/// Returns the rows of `table` [V, H] for `tokens` [b, L] -> [b, L, H]. Throws ConfigError if a token on the CPU is
/// outside the table.
///
/// Backward adds to the table's gradient (which may be undefined before) in the order of `tokens`. If the backward is
/// split into an input-gradient and a weight-gradient op (linear.h), the latter adds; until then, the WeightGradients
/// queue keeps the gradient of the result. Whole and split backwards give the same bits.
[[nodiscard]] at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens);

/// Adds the L rows of `table` [positions, H] from row `first` on to each sequence of `embedded` [b, L, H]. Backward
/// adds to the table's gradient as above, summed over sequences. Throws ConfigError if a sequence ends beyond the
/// table.
[[nodiscard]] at::Tensor add_positions(const at::Tensor& embedded, const at::Tensor& table, std::int64_t first = 0);

}  // namespace chimera
