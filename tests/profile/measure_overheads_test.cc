#include "profile/measure_overheads.h"

#include <gtest/gtest.h>

#include <vector>

#include "profile/profiler.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

/// Calls `body` for each of `count` ranks; returns the results.
template <class Body>
std::vector<double> as_ranks(int count, const Body& body) {
  std::vector<double> results(static_cast<std::size_t>(count));
  run_rank_threads(count, profile_groups(), [&](RankId rank, Transport& transport) {
    Lockstep ranks(transport, static_cast<int>(rank.value()), /*computing=*/2);
    results[rank.index()] = body(ranks);
  });
  return results;
}

TEST(MeasureOverheadsTest, OtherRanksTakeNoPartInSumsOfThePair) {
  const auto overhead =
      as_ranks(3, [](Lockstep& ranks) { return measure_op_overhead(ranks, ParameterGroupId(2), 0.01); });
  EXPECT_GT(overhead[0], 0);
  EXPECT_LT(overhead[0], 0.1);
  EXPECT_EQ(overhead[0], overhead[2]) << "all know it";
}

TEST(MeasureLinksTest, DelaysByBusyRanksAreNeverNegative) {
  const auto delay = as_ranks(4, [](Lockstep& ranks) { return measure_busy_delay(ranks, 0.01); });
  EXPECT_GE(delay[0], 0);
  EXPECT_LT(delay[0], 1);
}

}  // namespace
}  // namespace chimera
