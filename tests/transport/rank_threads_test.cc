#include "transport/threads/rank_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "core/error.h"
#include "support/message_of.h"

namespace chimera {
namespace {

const RankThreads::Close kNobodyWaits = [](const std::string&) {};

std::string message_of(const std::exception_ptr& error) {
  return testing::message_of<std::exception>([&] { std::rethrow_exception(error); });
}

TEST(RankThreadsTest, EachRankKeepsItsThreadAndTheFirstIsTheCallers) {
  RankThreads threads(3);
  std::array<std::set<std::thread::id>, 3> seen;
  for (const int ranks : {3, 1, 2, 3}) {
    const auto note = [&](RankId rank) { seen[rank.index()].insert(std::this_thread::get_id()); };
    EXPECT_FALSE(threads.run(ranks, note, kNobodyWaits));
  }
  std::set<std::thread::id> all;
  for (const auto& of_rank : seen) {
    EXPECT_EQ(of_rank.size(), 1U);
    all.insert(of_rank.begin(), of_rank.end());
  }
  EXPECT_EQ(all.size(), 3U);
  EXPECT_EQ(*seen[0].begin(), std::this_thread::get_id());
}

TEST(RankThreadsTest, ReportsTheFailedRankAndContinues) {
  RankThreads threads(2);
  std::string why;
  const auto failure = threads.run(
      2,
      [](RankId rank) {
        if (rank == RankId(1)) throw Error("lost\nand more");
      },
      [&](const std::string& reason) { why = reason; });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, RankId(1));
  EXPECT_EQ(message_of(failure->error), "lost\nand more");
  EXPECT_EQ(why, "rank 1 failed: lost");
  int ran = 0;
  EXPECT_FALSE(threads.run(
      1, [&](RankId) { ++ran; }, kNobodyWaits));
  EXPECT_EQ(ran, 1);
}

void wait_for(RankId rank, Transport& transport) { transport.post_receive(rank, {{1}, at::kFloat}, {})->wait(); }

TEST(RankThreadsTest, FailureEndsWaitingRanksAndIsReported) {
  for (const RankId culprit : {RankId(0), RankId(2)}) {
    const auto failure = try_rank_threads(3, {}, [&](RankId rank, Transport& transport) {
      if (rank == culprit) throw Error("out of order");
      wait_for(culprit, transport);
    });
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->rank, culprit);
    EXPECT_EQ(message_of(failure->error), "out of order");
  }
}

TEST(RankThreadsTest, RethrowsTheRanksException) {
  const auto second_fails = [](RankId rank, Transport& transport) {
    if (rank == RankId(1)) throw ConfigError("wrong");
    wait_for(RankId(1), transport);
  };
  EXPECT_THROW(run_rank_threads(2, {}, second_fails), ConfigError);
}

/// Bytes of address space of this process.
rlim_t address_space() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::getpagesize());
}

/// Leaves room for the stack of one more thread, but not of two.
void leave_room_for_one_thread() {
  constexpr std::size_t kStack = std::size_t{1} << 30;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStack);
  ::pthread_setattr_default_np(&attributes);
  const rlim_t most = address_space() + kStack + kStack / 2;
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
}

// A death test, because resource limits cannot be raised again.
TEST(RankThreadsDeathTest, FailedThreadCreationIsAnErrorAndLeavesNoThread) {
#ifdef CHIMERA_SANITIZED
  GTEST_SKIP() << "sanitizers reserve more address space than any limit leaves";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        leave_room_for_one_thread();
        try {
          run_rank_threads(3, {}, [](RankId, Transport&) {});
        } catch (const Error& error) {
          std::fprintf(stderr, "%s", error.what());
          std::_Exit(7);
        }
      },
      ::testing::ExitedWithCode(7), "no thread for rank 2 of 3: Resource temporarily unavailable");
}

}  // namespace
}  // namespace chimera
