#include "profile/rank_threads.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <stdexcept>

namespace chimera {
namespace {

TEST(RankThreadsTest, EachRankKeepsItsThread) {
  RankThreads threads(3);
  std::array<std::set<std::thread::id>, 3> seen;
  for (const int ranks : {3, 1, 2, 3}) {
    threads.run(ranks, [&](WorkerId rank) { seen[rank.index()].insert(std::this_thread::get_id()); });
  }
  std::set<std::thread::id> all;
  for (const auto& of_rank : seen) {
    EXPECT_EQ(of_rank.size(), 1U);
    all.insert(of_rank.begin(), of_rank.end());
  }
  EXPECT_EQ(all.size(), 3U);
  EXPECT_FALSE(all.contains(std::this_thread::get_id()));
}

TEST(RankThreadsTest, PassesOnWhatOneThrew) {
  RankThreads threads(2);
  const auto second_fails = [](WorkerId rank) {
    if (rank == WorkerId(1)) throw std::runtime_error("lost");
  };
  EXPECT_THROW(threads.run(2, second_fails), std::runtime_error);
  int ran = 0;
  threads.run(1, [&](WorkerId) { ++ran; });
  EXPECT_EQ(ran, 1) << "and goes on";
}

}  // namespace
}  // namespace chimera
