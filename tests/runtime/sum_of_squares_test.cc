#include "runtime/step_reduction.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace chimera {
namespace {

TEST(SumOfSquaresTest, EqualsTheFloat64Norm) {
  for (const std::int64_t count : {1, 15, 16, 17, 1000, 4099}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor numbers = at::arange(count, at::kDouble).sub(count / 2.0).div(7).to(dtype);
      const double norm = numbers.to(at::kDouble).norm().item<double>();
      EXPECT_NEAR(sum_of_squares(numbers), norm * norm, 1e-12 * norm * norm + 1e-300) << count << " " << dtype;
    }
  }
  EXPECT_DOUBLE_EQ(sum_of_squares(at::ones({4, 6}).t()), 24);
}

TEST(SumOfSquaresTest, IsInfiniteOnlyIfANumberIs) {
  EXPECT_TRUE(std::isfinite(sum_of_squares(at::full({3}, 3e38F))));
  EXPECT_TRUE(std::isnan(sum_of_squares(at::full({3}, NAN))));
}

}  // namespace
}  // namespace chimera
