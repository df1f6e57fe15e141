#include "runtime/sum_of_squares.h"

#include <ATen/ATen.h>

#include <array>

namespace chimera {
namespace {

/// Lanes that do not wait for each other, which a compiler makes vectors of.
template <class Number>
double sum_in_lanes(const Number* elements, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<double, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(elements[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(elements[i]);
    sums[static_cast<std::size_t>(lane)] += value * value;
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

}  // namespace

double sum_of_squares(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    if (tensor.scalar_type() == at::kFloat) return sum_in_lanes(tensor.const_data_ptr<float>(), tensor.numel());
    if (tensor.scalar_type() == at::kDouble) return sum_in_lanes(tensor.const_data_ptr<double>(), tensor.numel());
  }
  const double norm = at::linalg_vector_norm(tensor, 2, {}, false, at::kDouble).item<double>();
  return norm * norm;
}

at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors) {
  return at::stack(at::_foreach_norm(tensors, 2, at::kDouble)).square_();
}

}  // namespace chimera
