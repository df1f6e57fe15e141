#include "runtime/gradient_norms.h"

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

TEST(SumOfSquaresTest, EveryParameterBelongsToOneMember) {
  for (std::int64_t first = 0; first < 100; ++first) {
    for (const std::int64_t count : {std::int64_t{1}, (101 - first) / 2, 100 - first}) {
      int owners = 0;
      for (std::int64_t member = 0; member < 3; ++member)
        owners += SquaresShare{member, 3}.has(first, count, 100) ? 1 : 0;
      EXPECT_EQ(owners, 1) << first << " " << count;
    }
  }
  EXPECT_TRUE((SquaresShare{0, 3}.has(33, 0, 100)));
  EXPECT_TRUE((SquaresShare{1, 3}.has(34, 0, 100)));
}

TEST(SumOfSquaresTest, DominantMatrixAndTheRestHaveDifferentOwners) {
  const SquaresShare first{0, 2};
  const SquaresShare second{1, 2};
  EXPECT_TRUE(first.has(0, 95, 100));  // an embedding, then blocks
  EXPECT_TRUE(second.has(95, 5, 100));
  EXPECT_TRUE(first.has(0, 5, 100));  // blocks, then a head
  EXPECT_TRUE(second.has(5, 95, 100));
}

}  // namespace
}  // namespace chimera
