#include "model/module_stage.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace chimera {
namespace {

at::Tensor flat_bytes(const at::Tensor& tensor) { return tensor.reshape({-1}).contiguous().view(at::kByte); }

TEST(MessageLayoutTest, MessagesKeepAllBits) {
  const TensorVector values{at::randn({2, 3}, at::kDouble),
                            at::tensor({1.5F, -std::numeric_limits<float>::infinity(), std::nanf("")}),
                            at::randn({5}).to(at::kHalf),
                            at::randn({3}).to(at::kBFloat16),
                            at::full({1, 2}, (std::int64_t{1} << 62) + 1),
                            at::arange(256).to(at::kByte),
                            at::ones({}, at::kBool),
                            at::Tensor(),
                            at::empty({0, 4})};
  const MessageLayout layout = message_layout_of(values);
  EXPECT_EQ(find_fault(values), "");
  const at::Tensor message = pack(values, layout);
  EXPECT_EQ(message_shape(layout), (TensorShape{message.sizes().vec(), at::kDouble}));
  EXPECT_EQ(message.dim(), 1);
  const TensorVector found = unpack(message, layout);
  ASSERT_EQ(found.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(found[i].defined(), values[i].defined()) << i;
    if (!values[i].defined()) continue;
    EXPECT_EQ(found[i].sizes(), values[i].sizes()) << i;
    EXPECT_EQ(found[i].scalar_type(), values[i].scalar_type()) << i;
    EXPECT_TRUE(at::equal(flat_bytes(found[i]), flat_bytes(values[i]))) << i;
  }
}

TEST(MessageLayoutTest, AFloatingPointTensorIsItsOwnMessage) {
  const at::Tensor tensor = at::ones({2, 3}, at::kBFloat16);
  const MessageLayout layout = message_layout_of({tensor});
  EXPECT_EQ(message_shape(layout), (TensorShape{{2, 3}, at::kBFloat16}));
  EXPECT_TRUE(pack({tensor}, layout).is_same(tensor));
  EXPECT_TRUE(unpack(tensor, layout).front().is_same(tensor));
  EXPECT_EQ(message_shape(message_layout_of({at::arange(3)})), (TensorShape{{32}, at::kFloat}))
      << "24 bytes and padding";
}

TEST(MessageLayoutTest, GradientsReturnToTensorsThatHadOne) {
  const at::Tensor leaf = at::ones({3}).requires_grad_();
  const TensorVector values{leaf * 2, at::ones({3}), at::arange(3)};
  const MessageLayout layout = message_layout_of(values);
  const at::Tensor message = pack(values, layout);
  const at::Tensor received = message.detach().requires_grad_();
  const TensorVector found = unpack(received, layout);
  EXPECT_TRUE(found[0].requires_grad());
  EXPECT_FALSE(found[1].requires_grad() || found[2].requires_grad());
  (found[0] * found[1]).sum().backward();
  message.backward(received.grad());
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({3}, 2.0F)));
}

TEST(MessageLayoutTest, AGradientMayBeMissingButNotAppear) {
  const MessageLayout without = message_layout_of({at::ones({3}), at::ones({3})});
  const MessageLayout with = message_layout_of({at::ones({3}).requires_grad_(), at::ones({3})});
  EXPECT_TRUE(fits(without, with));
  EXPECT_FALSE(fits(with, without));
  EXPECT_EQ(describe(with), "[3] of Float, [3] of Float without a gradient");
}

}  // namespace
}  // namespace chimera
