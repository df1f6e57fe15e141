
#include "runtime/non_finite.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace chimera {
namespace {

TEST(NonFiniteTest, FindsASingleBadElement) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    at::Tensor tensor = at::full({37}, -3e38, dtype);
    EXPECT_TRUE(all_finite(tensor)) << "large, but numbers";
    EXPECT_TRUE(all_finite(at::zeros({0}, dtype)));
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      at::Tensor spoiled = tensor.clone();
      spoiled[36].fill_(bad);
      EXPECT_FALSE(all_finite(spoiled));
      EXPECT_FALSE(all_finite(spoiled.view({37, 1}).expand({37, 2}).t())) << "not contiguous";
    }
  }
}

TEST(NonFiniteTest, CorruptsWithoutAutograd) {
  const at::Tensor leaf = at::ones({2}, at::requires_grad());
  const at::Tensor tensor = leaf * 2;
  const auto version = tensor._version();
  inject_nan(tensor);
  EXPECT_FALSE(all_finite(tensor));
  EXPECT_EQ(tensor._version(), version);
}

TEST(NonFiniteTest, OrdersOpsAsANanSpreads) {
  const auto order = spread_order(2, 3, 4);
  const auto index = [&](OpKind kind, std::int64_t group, std::int64_t micro_batch, std::int64_t stage) {
    const auto is_it = [&](const GroupOp& one) {
      return one.group == GroupId(group) && one.op.kind == kind && one.op.stage == StageId(stage) &&
             one.op.micro_batch == MicroBatchId(micro_batch);
    };
    return std::ranges::find_if(order, is_it) - order.begin();
  };
  EXPECT_EQ(order.size(), 48U);
  EXPECT_LT(index(OpKind::Forward, 0, 1, 2), index(OpKind::Forward, 0, 1, 3));
  EXPECT_LT(index(OpKind::Forward, 1, 2, 3), index(OpKind::Backward, 0, 0, 3));
  EXPECT_LT(index(OpKind::Backward, 0, 0, 3), index(OpKind::Backward, 0, 0, 2));
  EXPECT_LT(index(OpKind::Forward, 0, 2, 3), index(OpKind::Forward, 1, 0, 0));
}

}  // namespace
}  // namespace chimera
