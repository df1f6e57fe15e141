#include "profile/measure_contention.h"

#include <gtest/gtest.h>

#include <vector>

#include "profile/profiler.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

TEST(ContentionTest, TheShorterSideWasSlowedDownThroughout) {
  // An all-reduce of 2 took 3. Meanwhile the ops ran at half speed and did 1.5 of 4; the other 2.5 came after it.
  const Contention sum_first = slowdown_of({.ops_alone = 4, .sum_alone = 2, .ops = 5.5, .sum = 3});
  EXPECT_DOUBLE_EQ(sum_first.ops_by_sums, 1);
  EXPECT_DOUBLE_EQ(sum_first.sums_by_ops, 0.5);
  // Ops of 2 took 3. Meanwhile the all-reduce did 2 of 6.
  const Contention ops_first = slowdown_of({.ops_alone = 2, .sum_alone = 6, .ops = 3, .sum = 7});
  EXPECT_DOUBLE_EQ(ops_first.ops_by_sums, 0.5);
  EXPECT_DOUBLE_EQ(ops_first.sums_by_ops, 0.5);
}

TEST(ContentionTest, SlowdownsAreNeverNegative) {
  EXPECT_EQ(slowdown_of({.ops_alone = 4, .sum_alone = 2, .ops = 3.5, .sum = 1.5}), Contention{});
  EXPECT_EQ(slowdown_of({.ops_alone = 1, .sum_alone = 1, .ops = 5, .sum = 1}).ops_by_sums, 0) << "somebody else's turn";
}

TEST(ContentionTest, AllRanksGetTheMeasurementOfThePair) {
  constexpr int kRanks = 4;
  std::vector<Contention> contention(kRanks);
  std::vector<LinkTimes> copies(kRanks);
  run_rank_threads(kRanks, profile_groups(), [&](RankId rank, Transport& transport) {
    Lockstep ranks(transport, static_cast<int>(rank.value()), /*computing=*/3);
    const OpWork compute = [] {
      volatile double sum = 0;
      for (int i = 0; i < 100; ++i) sum = sum + i;
    };
    const LinkTimes sums{1e-6, rank.value() == 0 ? 1e-9 : 0};
    contention[rank.index()] = measure_all_reduce_overlap(ranks, ParameterGroupId(2), sums, compute, 0.001);
    contention[rank.index()].transfers = measure_transfers_at_once(ranks, 0.001);
    contention[rank.index()].sums_overlap =
        measure_sums_overlap(ranks, {ParameterGroupId(2), ParameterGroupId(3)}, 0.001);
    contention[rank.index()].idle_gain = measure_idle_gain(ranks, compute, /*threads=*/1, 0.001);
    copies[rank.index()] = measure_message_copies(ranks, compute, 0.001);
  });
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(contention[static_cast<std::size_t>(rank)], contention[0]);
    EXPECT_EQ(copies[static_cast<std::size_t>(rank)], copies[0]);
  }
  EXPECT_GE(contention[0].ops_by_sums, 0);
  EXPECT_GE(contention[0].sums_by_ops, 0);
  EXPECT_GE(contention[0].transfers, 0);
  EXPECT_GE(contention[0].sums_overlap, 0);
  EXPECT_LE(contention[0].sums_overlap, 0.9);
  EXPECT_GE(contention[0].idle_gain, 0);
  EXPECT_LE(contention[0].idle_gain, 0.9);
  EXPECT_GE(copies[0].alpha, 0);
  EXPECT_GE(copies[0].beta, 0);
}

}  // namespace
}  // namespace chimera
