
#include "support/logging_transport.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"

namespace chimera {
namespace {

const RankId kZero(0), kOne(1);
const TensorSpec kPair{.sizes = {2}, .dtype = at::kFloat};

TEST(LoggingTransportTest, LogsEveryCallInOrder) {
  LoggingTransport transport;
  transport.prime(kZero, at::ones({2}));
  auto receive = transport.post_receive(kZero, kPair, {});
  auto send = transport.start_send(kOne, at::zeros({2, 3}), {});
  auto all_reduce = transport.start_all_reduce(ParameterGroupId(1), at::zeros({10}, at::kDouble));
  std::array<double, 2> values{1.0, 2.0};
  transport.all_sum(values);
  all_reduce->wait();
  receive->wait();
  send->wait();
  EXPECT_THAT(
      transport.lines(),
      ::testing::ElementsAre("receive from 0: [2] Float", "send to 1: [2, 3] Float", "all-reduce stage 1: [10] Double",
                             "all-sum: 2", "wait all-reduce stage 1", "wait receive from 0", "wait send to 1"));
}

TEST(LoggingTransportTest, DeliversPrimedMessagesInOrderOfPosting) {
  LoggingTransport transport;
  transport.prime(kZero, at::full({2}, 1.0F));
  transport.prime(kZero, at::full({2}, 2.0F));
  auto first = transport.post_receive(kZero, kPair, {});
  auto second = transport.post_receive(kZero, kPair, {});
  EXPECT_TRUE(at::equal(second->wait(), at::full({2}, 2.0F)));
  EXPECT_TRUE(at::equal(first->wait(), at::full({2}, 1.0F)));
}

TEST(LoggingTransportTest, ReceiveWithoutAMessageFailsInWait) {
  LoggingTransport transport;
  auto receive = transport.post_receive(kOne, kPair, {});
  EXPECT_THROW(receive->wait(), PeerLostError);
}

TEST(LoggingTransportTest, KeepsSentMessagesAndDoesNotChangeSums) {
  LoggingTransport transport;
  transport.start_send(kOne, at::full({2}, 5.0F), {})->wait();
  ASSERT_EQ(transport.sent(kOne).size(), 1U);
  EXPECT_TRUE(at::equal(transport.sent(kOne).front(), at::full({2}, 5.0F)));
  EXPECT_TRUE(transport.sent(kZero).empty());
  EXPECT_TRUE(at::equal(transport.start_all_reduce(ParameterGroupId(0), at::ones({3}))->wait(), at::ones({3})));
  transport.start_sum(ParameterGroupId(0), {.gradients = at::ones({3}), .counts = {2, 1}})->wait();
  EXPECT_EQ(transport.lines().back(), "wait reduce-scatter stage 0");
  EXPECT_EQ(transport.lines().at(transport.lines().size() - 2), "reduce-scatter stage 0: 2 + 1 of [3] Float");
}

}  // namespace
}  // namespace chimera
