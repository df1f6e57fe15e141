#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

/// W at most F: the closed form holds.
constexpr std::array kZbH2Costs = {SplitCosts{1, 1, 1}, SplitCosts{1, 1.25, 0.75}, SplitCosts{2, 3, 1},
                                   SplitCosts{2, 1, 2}, SplitCosts{1, 1.5, 1},     SplitCosts{1, 3, 0.5}};

TEST(ZbH2Test, InnerBubbleIsTheClosedFormAndTheMakespanIncludesTheStagger) {
  for (std::int64_t d = 1; d <= 12; ++d) {
    for (std::int64_t n = 2 * d - 1; n <= 3 * d + 1; ++n) {
      for (const auto& [f, i, w] : kZbH2Costs) {
        const Timeline timeline = testing::timed(zb_h2({d, n}), SplitCosts{f, i, w});
        const auto others = static_cast<double>(d - 1);
        const std::string where = testing::describe("zb-h2", {d, n}) + " I=" + std::to_string(i);
        double inner = 0;
        for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
          inner = std::max(inner, testing::inner_bubble(timeline, worker));
        }
        EXPECT_EQ(inner, others * std::max(0.0, f + i - 2 * w)) << where;
        EXPECT_GE(timeline.makespan, static_cast<double>(n) * (f + i + w) + others * f) << where;
      }
    }
  }
}

TEST(ZbH2Test, EveryWorkerHoldsAlmostTwiceDepth) {
  for (const PipelineShape& shape : testing::small_shapes("zb-h2")) {
    for (const auto& worker : testing::timed(zb_h2(shape), 1, 2).workers) {
      EXPECT_EQ(worker.peak_in_flight, std::min(2 * shape.stages - 1, shape.micro_batches))
          << testing::describe("zb-h2", shape);
    }
  }
}

/// Values at N = D are clipped: N is below 2D - 1.
TEST(ZbH2Test, MakespansOfTheComparisonTable) {
  const auto makespan = [](const PipelineShape& shape, const SplitCosts& costs, double latency) {
    return testing::timed(zb_h2(shape), costs, latency).makespan;
  };
  EXPECT_EQ(makespan({4, 4}, {1, 1, 1}, 0), 16);
  EXPECT_EQ(makespan({8, 8}, {1, 1, 1}, 0), 34);
  EXPECT_EQ(makespan({8, 16}, {1, 1, 1}, 0), 55);
  EXPECT_NEAR(makespan({8, 8}, {1, 1, 1}, 0.1), 35.1, 0.05);
  EXPECT_NEAR(makespan({8, 8}, {1, 1.3, 0.7}, 0.1), 36.6, 0.05);
  EXPECT_NEAR(makespan({8, 16}, {1, 1.3, 0.7}, 0.1), 55.7, 0.05);
  EXPECT_NEAR(makespan({8, 32}, {1, 1.3, 0.7}, 0.1), 103.7, 0.05);
}

TEST(ZbH2Test, RejectsInvalidShapes) {
  EXPECT_THROW((void)zb_h2({4, 0}), ConfigError);
  EXPECT_THROW((void)zb_h2({0, 4}), ConfigError);
}

}  // namespace
}  // namespace chimera
