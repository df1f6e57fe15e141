#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using testing::SplitCosts;

double v_min_makespan(const PipelineShape& shape, const SplitCosts& costs, double latency = 0) {
  return testing::timed(v_min(shape), costs, latency).makespan;
}

TEST(VMinTest, OrdersAtDepthFour) {
  EXPECT_THAT(testing::ops(v_min({4, 4})),
              ElementsAre("0F0 0F1 7F0 7I0 7W0 0F2 7F1 7I1 0I0 7W1 0W0 0F3 7F2 7I2 0I1 7W2 0W1 7F3 7I3 0I2 7W3 0W2 "
                          "0I3 0W3",
                          "1F0 6F0 1F1 6I0 6W0 6F1 1F2 1I0 6I1 1W0 6W1 6F2 1F3 1I1 6I2 1W1 6W2 6F3 1I2 6I3 1W2 6W3 "
                          "1I3 1W3",
                          "2F0 5F0 2F1 5I0 5F1 5W0 2I0 2F2 2W0 5I1 5F2 5W1 2I1 2F3 2W1 5I2 5F3 5W2 2I2 2W2 5I3 5W3 "
                          "2I3 2W3",
                          "3F0 4F0 3F1 4F1 4I0 3I0 4W0 3W0 3F2 4F2 4I1 3I1 4W1 3W1 3F3 4F3 4I2 3I2 4W2 3W2 4I3 3I3 "
                          "4W3 3W3"));
}

TEST(VMinTest, BubbleAndActivationsAreTheClosedForms) {
  for (std::int64_t depth = 2; depth <= 16; ++depth) {
    for (const std::int64_t n : {depth, 2 * depth, 3 * depth + 1}) {
      const Timeline timeline = testing::timed(v_min({depth, n}), SplitCosts{1, 1, 1});
      const double bubble = static_cast<double>(2 * depth) - (depth % 3 == 0 ? 1.5 : 2.5);
      EXPECT_NEAR(timeline.makespan, static_cast<double>(3 * n) + bubble, 1e-9)
          << testing::describe("v-min", {depth, n});
      EXPECT_EQ(testing::most_in_flight(timeline), 2 * ((depth + 4) / 3)) << testing::describe("v-min", {depth, n});
    }
  }
}

TEST(VMinTest, UnequalCostsAndLatencyMakeItMuchSlower) {
  const SplitCosts costs{1, 1.3, 0.7};
  EXPECT_NEAR(v_min_makespan({8, 16}, costs, 0.1), 87.45, 1e-9);
  EXPECT_NEAR(v_min_makespan({8, 32}, costs, 0.1) - v_min_makespan({8, 16}, costs, 0.1), 16 * 4.4, 1e-9);
}

TEST(VMinTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)v_min({0, 4}), ConfigError);
  EXPECT_THROW((void)v_min({4, 0}), ConfigError);
  EXPECT_THROW((void)v_min({10'000, 2'000}), ConfigError);  // 1.2e8 ops
}

}  // namespace
}  // namespace chimera
