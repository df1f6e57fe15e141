
#include "train/observe/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Op op(OpKind kind, std::int64_t stage) { return {kind, ReplicaId(0), StageId(stage), MicroBatchId(0)}; }

/// A rank that has run forwards of some stages, each with the given duration.
OpTimes forwards(const std::vector<std::pair<std::int64_t, double>>& ops) {
  OpTimes times(3);
  for (const auto& [stage, seconds] : ops) times.add(op(OpKind::Forward, stage), {.wall_seconds = seconds});
  return times;
}

TEST(StragglersTest, ARankIsComparedWithOthersThatRunTheSameOps) {
  const auto ranks =
      compute_times_of_ranks({forwards({{0, 1}, {1, 2}}), forwards({{0, 3}}), forwards({{1, 2}, {1, 6}})}, 2);
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_DOUBLE_EQ(ranks[0].seconds, 1.5);
  EXPECT_DOUBLE_EQ(*ranks[0].elsewhere, (3 + 4) / 2.0);
  EXPECT_DOUBLE_EQ(ranks[0].lost(), 0);
  EXPECT_DOUBLE_EQ(ranks[1].seconds, 1.5);
  EXPECT_DOUBLE_EQ(*ranks[1].elsewhere, 0.5);
  EXPECT_DOUBLE_EQ(ranks[1].lost(), 1);
  EXPECT_DOUBLE_EQ(*ranks[2].elsewhere, 2);
}

TEST(StragglersTest, ForwardsAndBackwardsAreSeparate) {
  OpTimes backwards(3);
  backwards.add(op(OpKind::Backward, 0), {.wall_seconds = 2});
  const auto ranks = compute_times_of_ranks({forwards({{0, 1}}), backwards}, 1);
  EXPECT_EQ(ranks[0].elsewhere, std::nullopt) << "nobody else runs its op";
  EXPECT_EQ(ranks[0].lost(), 0);
}

TEST(StragglersTest, NamesASlowRankAndItsCostPerStep) {
  const std::string text =
      straggler_report(compute_times_of_ranks({forwards({{0, 0.1}}), forwards({{0, 0.25}})}, 1), 0.5);
  EXPECT_THAT(text, HasSubstr("rank 1 is slow: its ops take 2.50 times as long as on other ranks; a step loses up to "
                              "0.1500 s to it (30.0 %)\n"));
  EXPECT_THAT(text, Not(HasSubstr("rank 0 is slow")));
}

TEST(StragglersTest, SmallDifferencesAreIgnored) {
  const std::string text = straggler_report(
      compute_times_of_ranks({forwards({{0, 0.1}}), forwards({{0, 0.105}}), forwards({{1, 9}})}, 1), 0.5);
  EXPECT_THAT(text, HasSubstr("no rank takes 10 % longer than others for the same ops\n"));
  EXPECT_THAT(text, HasSubstr("none"));
}

}  // namespace
}  // namespace chimera
