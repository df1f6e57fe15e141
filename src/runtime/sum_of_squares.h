#pragma once
// What a gradient norm is made of.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace chimera {

/// The sum of the squares of all elements, in float64, in an order that depends on their number alone. It is written
/// out here because ATen's norm of float32 in float64 takes several times as long as reading the memory.
[[nodiscard]] double sum_of_squares(const at::Tensor& tensor);

/// The same of several tensors of a device that is not the CPU, in an order of the device's: [tensors], in float64,
/// there. Nobody waits for it.
[[nodiscard]] at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors);

/// The part of a list's elements that one of several members sums: of the list of all elements, cut into equal runs,
/// the parameters whose middle lies in its run. A matrix that is half of the list, first or last in it, is one member's
/// then, and the rest another's.
struct SquaresShare {
  std::int64_t member = 0;
  std::int64_t members = 1;
  /// Whether it has the parameter of `count` elements from `first` on, of `elements` in all.
  [[nodiscard]] bool has(std::int64_t first, std::int64_t count, std::int64_t elements) const {
    return (2 * first + count) * members / (2 * elements) == member;
  }
};

}  // namespace chimera
