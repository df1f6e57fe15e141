
#include "transport/recorder.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"

namespace chimera {
namespace {

const RankId kZero(0), kOne(1);
const TensorSpec kPair{.sizes = {2}, .dtype = at::kFloat};

TEST(RecorderTest, RecordsEveryCallInOrder) {
  Recorder recorder;
  recorder.prime(kZero, at::ones({2}));
  auto receive = recorder.post_receive(kZero, kPair, {});
  auto send = recorder.start_send(kOne, at::zeros({2, 3}), {});
  auto all_reduce = recorder.start_all_reduce(ParameterGroupId(1), at::zeros({10}, at::kDouble));
  std::array<double, 2> values{1.0, 2.0};
  recorder.all_sum(values);
  all_reduce->wait();
  receive->wait();
  send->wait();
  EXPECT_THAT(
      recorder.lines(),
      ::testing::ElementsAre("receive from 0: [2] Float", "send to 1: [2, 3] Float", "all-reduce stage 1: [10] Double",
                             "all-sum: 2", "wait all-reduce stage 1", "wait receive from 0", "wait send to 1"));
}

TEST(RecorderTest, DeliversPrimedMessagesInOrderOfPosting) {
  Recorder recorder;
  recorder.prime(kZero, at::full({2}, 1.0F));
  recorder.prime(kZero, at::full({2}, 2.0F));
  auto first = recorder.post_receive(kZero, kPair, {});
  auto second = recorder.post_receive(kZero, kPair, {});
  EXPECT_TRUE(at::equal(second->wait(), at::full({2}, 2.0F)));
  EXPECT_TRUE(at::equal(first->wait(), at::full({2}, 1.0F)));
}

TEST(RecorderTest, ReceiveWithoutAMessageFailsInWait) {
  Recorder recorder;
  auto receive = recorder.post_receive(kOne, kPair, {});
  EXPECT_THROW(receive->wait(), PeerLostError);
}

TEST(RecorderTest, KeepsSentMessagesAndDoesNotChangeSums) {
  Recorder recorder;
  recorder.start_send(kOne, at::full({2}, 5.0F), {})->wait();
  ASSERT_EQ(recorder.sent(kOne).size(), 1U);
  EXPECT_TRUE(at::equal(recorder.sent(kOne).front(), at::full({2}, 5.0F)));
  EXPECT_TRUE(recorder.sent(kZero).empty());
  EXPECT_TRUE(at::equal(recorder.start_all_reduce(ParameterGroupId(0), at::ones({3}))->wait(), at::ones({3})));
  recorder.start_reduce_scatter(ParameterGroupId(0), at::ones({3}), {}, nullptr, {2, 1})->wait();
  EXPECT_EQ(recorder.lines().back(), "wait reduce-scatter stage 0");
  EXPECT_EQ(recorder.lines().at(recorder.lines().size() - 2), "reduce-scatter stage 0: 2 + 1 of [3] Float");
}

}  // namespace
}  // namespace chimera
