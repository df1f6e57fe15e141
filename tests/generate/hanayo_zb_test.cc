#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

PipelineShape zb_waves(std::int64_t stages, std::int64_t micro_batches, std::int64_t w) {
  return {.stages = stages, .micro_batches = micro_batches, .waves = w};
}

TEST(HanayoZbTest, UsesHanayosPlacement) {
  EXPECT_EQ(hanayo_zb(zb_waves(3, 2, 2)).placement, hanayo(zb_waves(3, 2, 2)).placement);
}

TEST(HanayoZbTest, ReachesTheBoundOfOneReplicaAtEqualCosts) {
  for (std::int64_t depth = 2; depth <= 12; ++depth) {
    for (std::int64_t w = 1; w <= 3; ++w) {
      for (const std::int64_t n : {depth, 2 * depth, 3 * depth}) {
        const Timeline timeline = testing::timed(hanayo_zb(zb_waves(depth, n, w)), SplitCosts{1, 1, 1});
        const double bubble = static_cast<double>(depth - 1) / static_cast<double>(2 * w);
        EXPECT_NEAR(timeline.makespan, static_cast<double>(3 * n) + bubble, 1e-9)
            << testing::describe("hanayo-zb", zb_waves(depth, n, w));
        EXPECT_NEAR(timeline.lower_bound, timeline.makespan, 1e-9);
        EXPECT_EQ(testing::most_in_flight(timeline), 2 * w * depth);
      }
    }
  }
}

TEST(HanayoZbTest, AnyCountHoldsNoMore) {
  for (std::int64_t depth = 1; depth <= 6; ++depth) {
    for (std::int64_t w = 1; w <= 3; ++w) {
      for (std::int64_t n = 1; n <= 4 * depth + 1; ++n) {
        const Schedule schedule = hanayo_zb(zb_waves(depth, n, w));
        ASSERT_TRUE(check(schedule).empty()) << testing::describe("hanayo-zb", zb_waves(depth, n, w));
        for (const SplitCosts& costs : {SplitCosts{1, 1, 1}, SplitCosts{1, 1.3, 0.7}}) {
          EXPECT_LE(testing::most_in_flight(testing::timed(schedule, costs, 0.1)), 2 * w * std::min(n, depth))
              << testing::describe("hanayo-zb", zb_waves(depth, n, w));
        }
      }
    }
  }
}

TEST(HanayoZbTest, IsFasterThanWholeBackwards) {
  EXPECT_DOUBLE_EQ(testing::timed(hanayo_zb(zb_waves(8, 16, 1)), SplitCosts{1, 1, 1}).makespan, 51.5);
  EXPECT_DOUBLE_EQ(testing::timed(hanayo(zb_waves(8, 16, 1)), SplitCosts{1, 1, 1}).makespan, 72.5);
}

TEST(HanayoZbTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)hanayo_zb(zb_waves(0, 4, 1)), ConfigError);
  EXPECT_THROW((void)hanayo_zb(zb_waves(4, 4, 0)), ConfigError);
  EXPECT_THROW((void)hanayo_zb(zb_waves(1'000, 1'000, 17)), ConfigError);  // 1.02e8 ops
}

}  // namespace
}  // namespace chimera
