#pragma once
// Looking up rows of a table, with a backward that adds to those rows alone: a real vocabulary's table is far larger
// than what a micro-batch reads of it. Letters in shapes: b sequences of a micro-batch, L tokens of a sequence, H
// hidden width, V rows of a table.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

/// Rows of `table` [V, H] for `tokens` [b, L] -> [b, L, H]. Throws ConfigError for a token outside the table, where
/// they are on the CPU.
///
/// Backward adds each token's gradient to its row of the table's gradient (which need not be defined yet), one after
/// the other in the order of `tokens`, through the current WeightGradients queue, at once where there is none: B and W
/// make the same additions in the same order, so the bits depend on the order of micro-batches alone. What waits for W
/// is the gradient of the result.
[[nodiscard]] at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens);

/// `embedded` [b, L, H] and L rows of `table` [positions, H], from row `first` on, added to each sequence. Backward as
/// above, with the sequences added up first. Throws ConfigError where the sequence is longer than the table.
[[nodiscard]] at::Tensor add_positions(const at::Tensor& embedded, const at::Tensor& table, std::int64_t first = 0);

}  // namespace chimera
