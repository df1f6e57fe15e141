#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

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
        for (const auto& worker : testing::timed(schedule, 1, 2).workers) {
          EXPECT_LE(worker.peak_in_flight, 2 * w * depth) << "D=" << depth << " N=" << n << " w=" << w;
        }
      }
    }
  }
}

void expect_hanayo_rejected(const PipelineShape& shape, const char* what) {
  try {
    (void)hanayo(shape);
    ADD_FAILURE() << "accepted " << testing::describe("hanayo", shape);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

TEST(HanayoTest, RejectsInvalidShapes) {
  expect_hanayo_rejected(waves(0, 4, 1), "--stages must be at least 1");
  expect_hanayo_rejected(waves(4, 4, 0), "--waves must be at least 1, not 0");
  expect_hanayo_rejected(waves(4, 4, 1'000'000'000'000'000'000), "more than 100000000 ops");
  expect_hanayo_rejected(waves(1'000, 1'000, 26), "more than 100000000 ops");
}

}  // namespace
}  // namespace chimera
