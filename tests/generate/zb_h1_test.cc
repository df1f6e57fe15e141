#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

/// W at most F and I: the closed forms hold.
constexpr std::array kZbH1Costs = {SplitCosts{1, 1, 1}, SplitCosts{1, 1.25, 0.75}, SplitCosts{2, 3, 1},
                                   SplitCosts{3, 1, 1}, SplitCosts{1, 1.5, 1},     SplitCosts{1, 3, 0.5}};

TEST(ZbH1Test, BubblesAreTheClosedForms) {
  for (std::int64_t d = 1; d <= 12; ++d) {
    for (std::int64_t n = d; n <= 3 * d + 1; ++n) {
      for (const auto& [f, i, w] : kZbH1Costs) {
        const Timeline timeline = testing::timed(zb_h1({d, n}), SplitCosts{f, i, w});
        const double bubble = static_cast<double>(d - 1) * (f + i - w);
        const std::string where = testing::describe("zb-h1", {d, n}) + " I=" + std::to_string(i);
        EXPECT_EQ(timeline.makespan, static_cast<double>(n) * (f + i + w) + bubble) << where;
        double inner = 0;
        for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
          inner = std::max(inner, testing::inner_bubble(timeline, worker));
        }
        EXPECT_EQ(inner, bubble) << where;
      }
    }
  }
}

TEST(ZbH1Test, EveryWorkerHoldsDepthActivations) {
  for (const PipelineShape& shape : testing::small_shapes("zb-h1")) {
    for (const auto& worker : testing::timed(zb_h1(shape), 1, 2).workers) {
      EXPECT_EQ(worker.peak_in_flight, std::min(shape.stages - 1 + shape.slices, shape.micro_batches * shape.slices))
          << testing::describe("zb-h1", shape);
    }
  }
}

TEST(ZbH1Test, MakespansOfTheComparisonTable) {
  const auto makespan = [](const PipelineShape& shape, const SplitCosts& costs, double latency) {
    return testing::timed(zb_h1(shape), costs, latency).makespan;
  };
  EXPECT_EQ(makespan({4, 4}, {1, 1, 1}, 0), 15);
  EXPECT_EQ(makespan({6, 6}, {1, 1, 1}, 0), 23);
  EXPECT_EQ(makespan({8, 8}, {1, 1, 1}, 0), 31);
  EXPECT_EQ(makespan({8, 16}, {1, 1, 1}, 0), 55);
  EXPECT_NEAR(makespan({8, 8}, {1, 1, 1}, 0.1), 33.6, 0.05);
  EXPECT_NEAR(makespan({8, 8}, {1, 1, 1}, 0.3), 38.8, 0.05);
  EXPECT_NEAR(makespan({8, 8}, {1, 1, 1}, 0.5), 44, 0.05);
  EXPECT_NEAR(makespan({8, 8}, {1, 1.3, 0.7}, 0.1), 37.8, 0.05);
  EXPECT_NEAR(makespan({8, 8}, {1, 1.3, 0.7}, 0.3), 43, 0.05);
  EXPECT_NEAR(makespan({8, 16}, {1, 1.3, 0.7}, 0.1), 62, 0.05);
  EXPECT_NEAR(makespan({8, 32}, {1, 1.3, 0.7}, 0.1), 110, 0.05);
}

TEST(ZbH1Test, RejectsInvalidShapes) {
  EXPECT_THROW((void)zb_h1({4, 0}), ConfigError);
  EXPECT_THROW((void)zb_h1({0, 4}), ConfigError);
  EXPECT_THROW((void)zb_h1({10'000, 4'000}), ConfigError);  // 1.2e8 ops
}

}  // namespace
}  // namespace chimera
