#pragma once
// What a gradient norm is made of.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

/// The sum of the squares of all elements, in float64, in an order that depends on their number alone. It is written
/// out here because ATen's norm of float32 in float64 takes several times as long as reading the memory.
[[nodiscard]] double sum_of_squares(const at::Tensor& tensor);

/// The part of a list's elements that one of several members sums: parameters are dealt out as they begin in the list
/// of all elements, cut into equal runs.
struct SquaresShare {
  std::int64_t member = 0;
  std::int64_t members = 1;
  [[nodiscard]] bool has(std::int64_t first_element, std::int64_t elements) const {
    return first_element * members / elements == member;
  }
};

}  // namespace chimera
