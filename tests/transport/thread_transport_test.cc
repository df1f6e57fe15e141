// Ranks as threads: the contract of every transport, and cases specific to threads.

#include "transport/threads/thread_transport.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <exception>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "contract.h"
#include "core/error.h"
#include "support/message_of.h"

namespace chimera {
namespace {

const RankId kThread0(0), kThread1(1);
const RankGroups kShared{{kThread0, kThread1}};
const TensorSpec kTwoFloats{.sizes = {2}, .dtype = at::kFloat};

/// Runs `play` as every rank; a rank that fails closes the hub. Returns the first failure, or "".
std::string run_ranks(ThreadHub& hub, int ranks, const std::function<void(Transport&, RankId)>& play) {
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, me = RankId(rank)] {
        const auto transport = hub.transport(me);
        try {
          play(*transport, me);
        } catch (const PeerLostError&) {  // a consequence of the first failure
        } catch (const std::exception& error) {
          failures[me.index()] = error.what();
          hub.close(error.what());
        }
      });
    }
  }
  for (const auto& failure : failures) {
    if (!failure.empty()) return failure;
  }
  return {};
}

constexpr auto peer_lost = [](const auto& action) { return testing::message_of<PeerLostError>(action); };

class ThreadContractTest : public ::testing::TestWithParam<contract::Scenario> {};

TEST_P(ThreadContractTest, Holds) {
  ThreadHub hub(contract::kWorkers, contract::groups());
  EXPECT_EQ(run_ranks(hub, contract::kWorkers, GetParam().play), "");
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadContractTest, ::testing::ValuesIn(contract::scenarios()),
                         [](const auto& scenario) { return scenario.param.name; });

TEST(ThreadTransportTest, HandsTensorsOverWithoutCopying) {
  ThreadHub hub(2, {});
  const auto sender = hub.transport(kThread0), receiver = hub.transport(kThread1);
  const at::Tensor tensor = at::ones({2});
  auto send = sender->start_send(kThread1, tensor, {});
  EXPECT_FALSE(send->wait().defined()) << "a send is done at once";
  EXPECT_EQ(receiver->post_receive(kThread0, kTwoFloats, {})->wait().data_ptr(), tensor.data_ptr());
}

// In float32 ((1e8 + 1) - 1e8) + 0.1 is 0.1; most other orders give another sum.
TEST(ThreadTransportTest, SumsStagesInOrderOfWorkers) {
  constexpr std::array<float, contract::kWorkers> kTerms{1e8F, 1.0F, -1e8F, 0.1F};
  ThreadHub hub(contract::kWorkers, contract::groups());
  const auto failure = run_ranks(hub, contract::kWorkers, [&](Transport& transport, RankId me) {
    const at::Tensor sum = transport.start_all_reduce(ParameterGroupId(2), at::full({1}, kTerms[me.index()]))->wait();
    if (sum.item<float>() != 0.1F) throw std::runtime_error(std::to_string(sum.item<float>()));
  });
  EXPECT_EQ(failure, "");
}

TEST(ThreadTransportTest, StartingASumDoesNotWait) {
  ThreadHub hub(2, kShared);
  const auto zero = hub.transport(kThread0), one = hub.transport(kThread1);
  auto first = zero->start_all_reduce(ParameterGroupId(0), at::ones({2}));
  auto second = zero->start_all_reduce(ParameterGroupId(0), at::ones({2}) * 10);
  auto other_first = one->start_all_reduce(ParameterGroupId(0), at::ones({2}));
  EXPECT_TRUE(at::equal(first->wait(), at::ones({2}) * 2)) << "all have started: no wait() of theirs is needed";
  auto other_second = one->start_all_reduce(ParameterGroupId(0), at::ones({2}));
  EXPECT_TRUE(at::equal(other_second->wait(), at::ones({2}) * 11));
  EXPECT_TRUE(at::equal(second->wait(), at::ones({2}) * 11));
  EXPECT_TRUE(at::equal(other_first->wait(), at::ones({2}) * 2));
}

TEST(ThreadTransportTest, RejectsAMessageOfAnotherShapeOrType) {
  ThreadHub hub(2, {});
  const auto zero = hub.transport(kThread0), one = hub.transport(kThread1);
  zero->start_send(kThread1, at::ones({3}), {});
  zero->start_send(kThread1, at::ones({2}, at::kDouble), {});
  auto shape = one->post_receive(kThread0, kTwoFloats, {});
  auto type = one->post_receive(kThread0, kTwoFloats, {});
  try {
    shape->wait();
    FAIL() << "expected [2], sent [3]";
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("receive from rank 0: expected [2] Float, got [3] Float"));
  }
  EXPECT_THROW(type->wait(), TransportError);
}

TEST(ThreadTransportTest, RejectsSumsOfDifferentSizes) {
  ThreadHub hub(2, kShared);
  const auto zero = hub.transport(kThread0), one = hub.transport(kThread1);
  auto long_one = zero->start_all_reduce(ParameterGroupId(0), at::ones({2}));
  auto short_one = one->start_all_reduce(ParameterGroupId(0), at::ones({1}));
  EXPECT_THROW(long_one->wait(), TransportError);
  EXPECT_THROW(short_one->wait(), TransportError);
}

TEST(ThreadTransportTest, LaterWaitsThrowTheReasonForClosing) {
  ThreadHub hub(2, kShared);
  const auto zero = hub.transport(kThread0), one = hub.transport(kThread1);
  auto send = zero->start_send(kThread1, at::ones({2}), {});
  auto arrived = one->post_receive(kThread0, kTwoFloats, {});
  auto receive = zero->post_receive(kThread1, kTwoFloats, {});
  auto sum = zero->start_all_reduce(ParameterGroupId(0), at::ones({2}));
  hub.close("rank 1 ran out of memory");
  hub.close("the second reason");
  EXPECT_EQ(peer_lost([&] { receive->wait(); }), "rank 0: receive from rank 1: rank 1 ran out of memory");
  EXPECT_EQ(peer_lost([&] { arrived->wait(); }), "rank 1: receive from rank 0: rank 1 ran out of memory");
  EXPECT_EQ(peer_lost([&] { send->wait(); }), "rank 0: send to rank 1: rank 1 ran out of memory");
  EXPECT_EQ(peer_lost([&] { sum->wait(); }), "rank 0: all-reduce of stage 0: rank 1 ran out of memory");
  std::array<double, 1> value{1.0};
  EXPECT_EQ(peer_lost([&] { zero->all_sum(value); }), "rank 0: all-sum: rank 1 ran out of memory");
}

// The scheduler decides if a wait is already blocked when the hub closes: a hundred rounds cover both cases.
TEST(ThreadTransportTest, BlockedWaitsThrowWhenClosed) {
  for (int round = 0; round < 100; ++round) {
    ThreadHub hub(3, {{RankId(0), RankId(1), RankId(2)}});
    std::latch started(2);
    std::array<std::string, 2> errors;
    {
      const std::jthread receiver([&] {
        const auto transport = hub.transport(kThread0);
        auto receive = transport->post_receive(RankId(2), kTwoFloats, {});
        started.count_down();
        errors[0] = peer_lost([&] { receive->wait(); });
      });
      const std::jthread summer([&] {
        const auto transport = hub.transport(kThread1);
        auto sum = transport->start_all_reduce(ParameterGroupId(0), at::ones({2}));
        started.count_down();
        errors[1] = peer_lost([&] { sum->wait(); });
      });
      started.wait();
      hub.close("gone");
    }
    ASSERT_THAT(errors, ::testing::Each(::testing::EndsWith(": gone")));
  }
}

// No time limit, as machines differ: a message takes a few microseconds.
TEST(ThreadTransportTest, ManyMessagesKeepTheirOrderBetweenBusyThreads) {
  constexpr int kManyMessages = 20'000;
  ThreadHub hub(2, {});
  const auto failure = run_ranks(hub, 2, [&](Transport& transport, RankId me) {
    for (int i = 0; i < kManyMessages; ++i) {
      if (me == kThread0) {
        transport.start_send(kThread1, at::scalar_tensor(i, at::kInt), {})->wait();
      } else if (transport.post_receive(kThread0, {.sizes = {}, .dtype = at::kInt}, {})->wait().item<int>() != i) {
        throw std::runtime_error("messages overtook each other");
      }
    }
  });
  EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace chimera
