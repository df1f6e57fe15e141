#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

PipelineShape waves(std::int64_t stages, std::int64_t micro_batches, std::int64_t w) {
  return {.stages = stages, .micro_batches = micro_batches, .waves = w};
}

double bubble_ratio(const PipelineShape& shape) { return testing::timed(hanayo(shape), 1, 2).bubble_ratio; }

TEST(HanayoTest, EachWaveRunsDownAndUp) {
  const Schedule schedule = hanayo(waves(3, 1, 2));
  std::vector<std::int64_t> workers;
  for (const WorkerId w : schedule.placement.worker_of[0]) workers.push_back(w.value());
  EXPECT_THAT(workers, ::testing::ElementsAre(0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0));
}

TEST(HanayoTest, MoreWavesMakeFewerBubbles) {
  EXPECT_NEAR(bubble_ratio(waves(4, 4, 1)), 0.333, 5e-4);
  EXPECT_NEAR(bubble_ratio(waves(4, 4, 2)), 0.213, 5e-4);
  EXPECT_NEAR(bubble_ratio(waves(4, 4, 4)), 0.119, 5e-4);
  EXPECT_NEAR(bubble_ratio(waves(8, 8, 1)), 0.368, 5e-4);
  EXPECT_NEAR(bubble_ratio(waves(8, 8, 2)), 0.238, 5e-4);
  EXPECT_NEAR(bubble_ratio(waves(8, 8, 4)), 0.135, 5e-4);
}

TEST(HanayoTest, BubbleRatioIsAtMostAboutThePublishedRatio) {
  for (std::int64_t depth = 1; depth <= 10; ++depth) {
    for (std::int64_t w = 1; w <= 5; ++w) {
      const double published = static_cast<double>(2 * depth - 2) / static_cast<double>(3 * w * depth + depth - 1);
      EXPECT_LE(bubble_ratio(waves(depth, depth, w)), published + 0.005) << "D=" << depth << " w=" << w;
    }
  }
}

TEST(HanayoTest, MoreMicroBatchesMakeFewerBubbles) {
  for (const std::int64_t depth : {3, 4, 8}) {
    for (const std::int64_t w : {1, 2, 4}) {
      const double some = bubble_ratio(waves(depth, 2 * depth, w));
      const double many = bubble_ratio(waves(depth, 8 * depth, w));
      EXPECT_LT(many, some) << "D=" << depth << " w=" << w;
      EXPECT_LT(many, bubble_ratio(waves(depth, depth, w))) << "D=" << depth << " w=" << w;
    }
  }
}

TEST(HanayoTest, AnyCountRunsWithoutDeadlockOrMoreMemory) {
  for (std::int64_t depth = 1; depth <= 6; ++depth) {
    for (std::int64_t w = 1; w <= 3; ++w) {
      for (std::int64_t n = 1; n <= 4 * depth + 1; ++n) {
        const Schedule schedule = hanayo(waves(depth, n, w));
        ASSERT_TRUE(check(schedule).empty()) << "D=" << depth << " N=" << n << " w=" << w;
        for (const auto& worker : testing::timed(schedule, 1, 2).workers)
          EXPECT_LE(worker.peak_in_flight, 2 * w * depth) << "D=" << depth << " N=" << n << " w=" << w;
      }
    }
  }
}

TEST(HanayoZbTest, UsesHanayosPlacement) {
  EXPECT_EQ(hanayo_zb(waves(3, 2, 2)).placement, hanayo(waves(3, 2, 2)).placement);
}

TEST(HanayoZbTest, ReachesTheBoundOfOneReplicaAtEqualCosts) {
  for (std::int64_t depth = 2; depth <= 12; ++depth) {
    for (std::int64_t w = 1; w <= 3; ++w) {
      for (const std::int64_t n : {depth, 2 * depth, 3 * depth}) {
        const Timeline timeline = testing::timed(hanayo_zb(waves(depth, n, w)), SplitCosts{1, 1, 1});
        const double bubble = static_cast<double>(depth - 1) / static_cast<double>(2 * w);
        EXPECT_NEAR(timeline.makespan, static_cast<double>(3 * n) + bubble, 1e-9)
            << testing::describe("hanayo-zb", waves(depth, n, w));
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
        const Schedule schedule = hanayo_zb(waves(depth, n, w));
        ASSERT_TRUE(check(schedule).empty()) << testing::describe("hanayo-zb", waves(depth, n, w));
        for (const SplitCosts& costs : {SplitCosts{1, 1, 1}, SplitCosts{1, 1.3, 0.7}})
          EXPECT_LE(testing::most_in_flight(testing::timed(schedule, costs, 0.1)), 2 * w * std::min(n, depth))
              << testing::describe("hanayo-zb", waves(depth, n, w));
      }
    }
  }
}

}  // namespace
}  // namespace chimera
