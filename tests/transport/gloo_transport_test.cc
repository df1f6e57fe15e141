// Ranks as processes over Gloo: the contract of every transport, and ranks that die at bad moments.

#include "transport/gloo/gloo_transport.h"
#include "transport/gloo/collectives.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "contract.h"
#include "process.h"
#include "support/scratch.h"
#include "transport/gloo/rendezvous_store.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// The ranks of one test.
class Ranks {
 public:
  /// Starts ranks 0 .. world_size-1 to run `part` (see gloo_test_rank.cc); `fault` is a CHIMERA_FAULT, or "". The
  /// rendezvous is a memory file unless `rendezvous` is given.
  Ranks(const std::string& part, int world_size, const std::string& fault = "",
        milliseconds start_up = std::chrono::minutes(1), const std::string& rendezvous = "") {
    for (int rank = 0; rank < world_size; ++rank) {
      processes_.push_back(start({CHIMERA_GLOO_TEST_RANK, part, std::to_string(rank), std::to_string(world_size),
                                  rendezvous.empty() ? store_.path() : rendezvous, std::to_string(start_up.count())},
                                 "CHIMERA_FAULT=" + fault, output_));
    }
  }
  [[nodiscard]] int await_rank(std::size_t rank) const { return await(processes_[rank]); }
  [[nodiscard]] std::vector<int> await_all() const {
    std::vector<int> codes;
    for (const pid_t process : processes_) codes.push_back(await(process));
    return codes;
  }
  void signal(std::size_t rank, int number) const { ::kill(processes_[rank], number); }
  /// stdout and stderr of all ranks.
  [[nodiscard]] std::string output() const { return output_.text(); }

 private:
  MemoryFile store_{"store"};
  MemoryFile output_{"output"};
  std::vector<pid_t> processes_;
};

// On two hosts, with two ranks each, the group of all four uses the two-level all-reduce, and groups with one rank per
// host use Gloo alone. So do ranks that cannot share memory.
class GlooContractTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GlooContractTest, HoldsQuietly) {
  const Ranks ranks(GetParam(), contract::kWorkers);
  EXPECT_THAT(ranks.await_all(), Each(0)) << ranks.output();
  EXPECT_EQ(ranks.output(), "");
}

INSTANTIATE_TEST_SUITE_P(Gloo, GlooContractTest,
                         ::testing::Values("contract", "contract_on_two_hosts", "contract_over_sockets"),
                         [](const auto& part) { return std::string(part.param); });

TEST(GlooTransportTest, SumsOnTwoHostsUseTheMemoryOfEach) {
  const Ranks ranks("sum_on_two_hosts", contract::kWorkers);
  EXPECT_THAT(ranks.await_all(), Each(0)) << ranks.output();
}

// All ranks of rank 0's host have contributed when it is told so: it then adds by itself without waiting.
TEST(GlooTransportTest, LastContributorDoesNotWaitForOtherHosts) {
  const Ranks ranks("go_on_beside_a_sum_on_two_hosts", contract::kWorkers, "slow@handed-in");
  EXPECT_THAT(ranks.await_all(), Each(0)) << ranks.output();
}

TEST(GlooTransportTest, ADeathDuringASumIsSeenOnBothHosts) {
  const Ranks ranks("sum_on_two_hosts", contract::kWorkers, "kill@sum:1");
  EXPECT_EQ(ranks.await_rank(1), -SIGKILL) << ranks.output();
  for (const std::size_t rank : {0, 2, 3}) EXPECT_EQ(ranks.await_rank(rank), 3) << ranks.output();
}

TEST(GlooTransportTest, AMemberThatCannotAddFailsTheSumOnBothHosts) {
  const Ranks ranks("sum_on_two_hosts", contract::kWorkers, "throw@sum:1");
  EXPECT_EQ(ranks.await_rank(1), 4) << ranks.output();
  for (const std::size_t rank : {0, 2, 3}) EXPECT_EQ(ranks.await_rank(rank), 3) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("rank 1: all-reduce of stage 2: fault injected at sum"));
}

// Ranks do nothing between joining and leaving, so some leave while others are still joining.
TEST(GlooTransportTest, JoinsAndLeavesQuietly) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Ranks ranks("join", contract::kWorkers);
    EXPECT_THAT(ranks.await_all(), Each(0)) << ranks.output();
    EXPECT_EQ(ranks.output(), "");
  }
}

TEST(GlooTransportTest, SwappedMessagesAreAnErrorThatNamesBoth) {
  const Ranks ranks("swap_messages", 2);
  EXPECT_EQ(ranks.await_rank(0), 4) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("rank 1 sent 1F1 of replica 0 in step 3, but rank 0 waits for 1F0 of replica 0 "
                                        "in step 3; both ends must follow the same program"));
}

class GlooLossTest : public ::testing::TestWithParam<std::array<const char*, 2>> {};

TEST_P(GlooLossTest, IsDetectedByRanksThatWaitForTheDeadRank) {
  const auto [part, operation] = GetParam();
  const Ranks ranks(part, 2);
  EXPECT_EQ(ranks.await_rank(1), -SIGKILL) << ranks.output();
  EXPECT_EQ(ranks.await_rank(0), 3) << "rank 0 has no time limit: " << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr(operation));
}

INSTANTIATE_TEST_SUITE_P(OfAPeer, GlooLossTest,
                         ::testing::Values(std::array{"lose_receive", "rank 0: receive from rank 1: "},
                                           std::array{"lose_send", "rank 0: send to rank 1: "},
                                           std::array{"lose_all_reduce", "rank 0: all-reduce of stage 0: "},
                                           std::array{"lose_all_sum", "rank 0: all-sum: "}),
                         [](const auto& loss) { return std::string(loss.param[0]); });

TEST(GlooTransportTest, ADeathDuringASumInSharedMemoryIsSeenByTheOthers) {
  const Ranks ranks("sum_in_shared_memory", 2, "kill@sum:1");
  EXPECT_EQ(ranks.await_rank(1), -SIGKILL) << ranks.output();
  EXPECT_EQ(ranks.await_rank(0), 3) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("rank 0: all-reduce of stage 0: "));
}

// The all-reduce may have completed before rank 1 died, but no rank takes an incomplete sum.
TEST(GlooTransportTest, ADeathDuringASumOverSocketsIsSeenByTheOthers) {
  const Ranks ranks("die_in_sum_over_sockets", 2);
  EXPECT_EQ(ranks.await_rank(1), -SIGKILL) << ranks.output();
  EXPECT_THAT(ranks.await_rank(0), ::testing::AnyOf(3, 0)) << ranks.output();
}

TEST(GlooTransportTest, MemberThatCannotAddFailsTheSumForAll) {
  const Ranks ranks("sum_in_shared_memory", 2, "throw@sum:1");
  EXPECT_EQ(ranks.await_rank(1), 4) << ranks.output();
  EXPECT_EQ(ranks.await_rank(0), 3) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("rank 1: all-reduce of stage 0: fault injected at sum"));
  EXPECT_THAT(ranks.output(),
              HasSubstr("rank 0: all-reduce of stage 0: another member could not add its part of the sum"));
}

TEST(GlooTransportTest, MemberThatCannotMapFailsTheSumForAll) {
#ifdef CHIMERA_SANITIZED
  GTEST_SKIP() << "sanitizers look at memory and at names through descriptors, of which none is left here";
#endif
  const Ranks ranks("fail_to_map", 2);
  EXPECT_EQ(ranks.await_rank(1), 4) << ranks.output();
  EXPECT_EQ(ranks.await_rank(0), 3) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("Too many open files"));
}

TEST(GlooTransportTest, SumsOutsideSharedMemoryReuseMappedFiles) {
  const Ranks ranks("map_few_files", 2);
  EXPECT_THAT(ranks.await_all(), Each(0)) << ranks.output();
}

// The fault point kills ranks that wait for the others before they leave.
TEST(GlooTransportTest, ARankThatFailsDoesNotWaitForTheOthers) {
  const Ranks ranks("fail_alone", 2, "kill@end-barrier:1");
  EXPECT_EQ(ranks.await_rank(1), 1) << ranks.output();
  EXPECT_EQ(ranks.await_rank(0), 3) << ranks.output();
}

// The culprit is unknown; the broken connections that follow come from rank 0's exit.
TEST(GlooTransportTest, WaitTimeoutIsNotAPeerLoss) {
  const Ranks ranks("time_out", 2);
  EXPECT_EQ(ranks.await_rank(0), 4) << ranks.output();
  EXPECT_EQ(ranks.await_rank(1), 3) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("rank 0: receive from rank 1: Timed out"));
}

TEST(GlooTransportTest, TwoProcessesOfOneRankAreRefused) {
  const MemoryFile file("store");
  RendezvousStore first(file_rendezvous(file.path()), milliseconds(1));
  EXPECT_THAT([&] { first.await_all(1, 2); },
              ThrowsMessage<TransportError>(HasSubstr("have not joined within 0.001 s: 0")));
  RendezvousStore second(file_rendezvous(file.path()), milliseconds(1));
  EXPECT_THAT([&] { second.await_all(1, 2); },
              ThrowsMessage<ConfigError>("two processes are rank 1; give each of the 2 processes its own rank"));
}

TEST(GlooTransportTest, RawErrorsHaveAnExplanation) {
  const auto refused = [](const std::exception& error, const std::string& words) {
    EXPECT_THAT([&] { rethrow_gloo("rank 0: joining 2 ranks", error); },
                ThrowsMessage<TransportError>(HasSubstr("rank 0: joining 2 ranks: " + words)));
  };
  refused(std::system_error(EAGAIN, std::generic_category()), "the system has no more threads; raise the limit");
  refused(std::runtime_error("Gloo connectFullMesh failed with [/gloo/pair.cc:81] Connect timeout [none]"),
          "no connection in time; check that the hosts reach each other");
}

TEST(GlooTransportTest, DeathBeforeTheRendezvousEndsTheOthersInTime) {
  const Ranks ranks("join", 2, "kill@rendezvous:1", milliseconds(500));
  EXPECT_EQ(ranks.await_rank(1), -SIGKILL);
  EXPECT_EQ(ranks.await_rank(0), 4) << ranks.output();
  EXPECT_THAT(ranks.output(), HasSubstr("1 of 2 ranks have not joined within 0.5 s: 1"));
}

TEST(GlooTransportTest, DeathBeforeTheRendezvousLeavesTheOthersInterruptible) {
  const Ranks ranks("join", 3, "kill@rendezvous:1");
  EXPECT_EQ(ranks.await_rank(1), -SIGKILL);
  for (const std::size_t rank : {0, 2}) ranks.signal(rank, SIGTERM);
  EXPECT_EQ(ranks.await_rank(0), -SIGTERM);
  EXPECT_EQ(ranks.await_rank(2), -SIGTERM);
}

// The survivors have finished too: they leave quietly.
TEST(GlooTransportTest, DeathAfterJoiningDoesNotBlockLeaving) {
  const Ranks ranks("join", 3, "kill@connected:1");
  EXPECT_EQ(ranks.await_rank(1), -SIGKILL);
  EXPECT_THAT((std::array{ranks.await_rank(0), ranks.await_rank(2)}), Each(0)) << ranks.output();
}

TEST(GlooTransportTest, SurvivorsReconnectAfterALoss) {
  const testing::Scratch scratch;
  const Ranks ranks("outlive", 3, "", std::chrono::seconds(10), scratch.path(""));
  EXPECT_THAT(ranks.await_all(), Each(0)) << ranks.output();
}

TEST(GlooTransportTest, ConnectionsOfAProcessCanShareADevice) {
  constexpr int kRanks = 2;
  const std::array<MemoryFile, 2> stores{MemoryFile("one"), MemoryFile("other")};
  const auto device = gloo_device();
  const auto run_rank = [&](RankId rank) {
    std::vector<std::unique_ptr<Transport>> transports;
    for (const MemoryFile& store : stores) {
      transports.push_back(connect_gloo({.rank = static_cast<int>(rank.value()),
                                         .world_size = kRanks,
                                         .rendezvous = file_rendezvous(store.path()),
                                         .device = device}));
    }
    EXPECT_GE(device.use_count(), 3) << "used by both connections";
    for (const auto& transport : transports) {
      std::array<double, 1> value{static_cast<double>(rank.value()) + 1};
      transport->all_sum(value);
      EXPECT_EQ(value[0], 3);
    }
  };
  EXPECT_FALSE(RankThreads(kRanks).run(kRanks, run_rank, [](const std::string& why) { ADD_FAILURE() << why; }));
}

TEST(GlooTransportTest, SingleRankNeedsNoPeers) {
  const MemoryFile store("store");
  const auto transport = connect_gloo({.rendezvous = file_rendezvous(store.path()), .groups = {{RankId(0)}}});
  std::array<double, 1> value{2.5};
  transport->all_sum(value);
  EXPECT_EQ(value[0], 2.5);
  EXPECT_TRUE(at::equal(transport->start_all_reduce(ParameterGroupId(0), at::ones({2}))->wait(), at::ones({2})));
}

}  // namespace
}  // namespace chimera
