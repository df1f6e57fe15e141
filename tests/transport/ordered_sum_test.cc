#include "transport/ordered_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

at::Tensor one(float value) { return at::full({1}, value, at::kFloat); }

TEST(OrderedSumTest, AddsInTheOrderOfTheTree) {
  // ((big + 1) + (-big + 1)): float32 loses the ones. In the order of members, big - big + 1 + 1 = 2.
  const float big = 1e9F;
  const SumOrder order{{{{0, 0}, {0, 2}}, {{0, 1}, {0, 3}}}};
  EXPECT_EQ(add_in_order(order, {{one(big), one(-big)}, {one(1), one(1)}}).item<float>(), 0);
  EXPECT_EQ(add_in_order({{{{1, 1}}, {{1, 0}}}}, {{one(2)}, {one(3)}}).item<float>(), 5);
}

TEST(OrderedSumTest, MismatchedPartsAreAnError) {
  EXPECT_THROW((void)add_in_order({{{{0, 0}}}}, {{one(1), one(2)}}), TransportError);
  EXPECT_THROW((void)add_in_order({{{}}}, {{}}), TransportError);
}

}  // namespace
}  // namespace chimera
