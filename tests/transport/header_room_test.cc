
#include "transport/message.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace chimera {
namespace {

const MessageTag kTag{3, {OpKind::Forward, ReplicaId(0), StageId(1), MicroBatchId(2)}};
const RankId kSender(0), kReceiver(1);

class HeaderRoomTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { leave_header_room(); }
};

TEST_F(HeaderRoomTest, AMessageIsTheTensorsOwnMemory) {
  const at::Tensor tensor = at::arange(5, at::kDouble);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0U);
  const at::Tensor message = make_message(tensor, kTag);
  EXPECT_EQ(static_cast<char*>(message.data_ptr()) + kHeaderBytes, tensor.data_ptr());
  EXPECT_EQ(message.numel(), kHeaderBytes + 5 * 8);
  EXPECT_TRUE(
      at::equal(open_message(message, {{5}, at::kDouble}, kTag, kSender, kReceiver), at::arange(5, at::kDouble)));
}

TEST_F(HeaderRoomTest, AMessageKeepsTheMemoryAlive) {
  at::Tensor message;
  {
    const at::Tensor tensor = at::full({1000}, 4.0F);
    message = make_message(tensor, kTag);
  }
  const at::Tensor other = at::zeros({1000});  // would reuse freed memory
  EXPECT_TRUE(at::equal(tensor_of(message, {{1000}, at::kFloat}), at::full({1000}, 4.0F)));
}

TEST_F(HeaderRoomTest, TwoMessagesOfOneTensorDoNotShareAHeader) {
  const at::Tensor tensor = at::ones({4});
  const MessageTag other{4, kTag.op};
  {
    const at::Tensor first = make_message(tensor, kTag);
    const at::Tensor second = make_message(tensor, other);
    EXPECT_NO_THROW(static_cast<void>(open_message(first, {{4}}, kTag, kSender, kReceiver)));
    EXPECT_NO_THROW(static_cast<void>(open_message(second, {{4}}, other, kSender, kReceiver)));
  }
  EXPECT_TRUE(with_header_room(tensor)) << "free again";
}

TEST_F(HeaderRoomTest, TensorAtAnOffsetIsCopied) {
  const at::Tensor tensor = at::arange(8, at::kFloat).narrow(0, 4, 4);
  EXPECT_FALSE(with_header_room(tensor));
  EXPECT_TRUE(at::equal(tensor_of(make_message(tensor, kTag), {{4}, at::kFloat}), tensor));
  float numbers[4] = {1, 2, 3, 4};
  EXPECT_FALSE(with_header_room(at::from_blob(numbers, {4})));
}

TEST_F(HeaderRoomTest, TensorsMayGrow) {
  at::Tensor tensor = at::ones({3});
  tensor.resize_({100'000}).fill_(2);
  EXPECT_TRUE(with_header_room(tensor));
  EXPECT_EQ(tensor.sum().item<double>(), 200'000);
  EXPECT_EQ(at::zeros({0}).numel(), 0);
}

TEST_F(HeaderRoomTest, KernelsMayAllocateWithoutATensor) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  constexpr std::int64_t kBytes = 100;
  auto* one = static_cast<char*>(allocator->raw_allocate(kBytes));
  auto* other = static_cast<char*>(allocator->raw_allocate(kBytes));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(other) % 64, 0U);
  std::memset(one, 1, kBytes);
  std::memset(other, 2, kBytes);
  EXPECT_EQ(std::count(one, one + kBytes, 1), kBytes) << "its own, and room enough";
  allocator->raw_deallocate(one);
  EXPECT_EQ(std::count(other, other + kBytes, 2), kBytes) << "untouched by what was freed";
  allocator->raw_deallocate(other);
  EXPECT_EQ(allocator->raw_allocate(0), nullptr);
}

}  // namespace
}  // namespace chimera
