#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using testing::SplitCosts;

double v_half_makespan(const PipelineShape& shape, const SplitCosts& costs, double latency = 0) {
  return testing::timed(v_half(shape), costs, latency).makespan;
}

TEST(VHalfTest, OrdersAtDepthFour) {
  EXPECT_THAT(testing::ops(v_half({4, 4})),
              ElementsAre("0F0 0F1 7F0 0F2 7I0 7W0 7F1 0F3 7I1 7W1 7F2 0I0 7I2 0W0 7F3 7W2 0I1 7I3 0W1 7W3 0I2 0W2 "
                          "0I3 0W3",
                          "1F0 1F1 6F0 1F2 6F1 6I0 6W0 1F3 6F2 6I1 6W1 1I0 1W0 6F3 6I2 6W2 1I1 1W1 6I3 6W3 1I2 1W2 "
                          "1I3 1W3",
                          "2F0 5F0 2F1 5F1 2F2 5I0 5W0 5F2 2F3 2I0 5I1 2W0 5F3 5W1 2I1 5I2 2W1 5W2 2I2 5I3 2W2 5W3 "
                          "2I3 2W3",
                          "3F0 4F0 3F1 4F1 3F2 4F2 4I0 4W0 3I0 3W0 3F3 4F3 4I1 4W1 3I1 3W1 4I2 4W2 3I2 3W2 4I3 4W3 "
                          "3I3 3W3"));
}

TEST(VHalfTest, BubbleAndActivationsAreTheClosedForms) {
  for (std::int64_t depth = 2; depth <= 16; ++depth) {
    for (const std::int64_t n : {depth, 2 * depth, 3 * depth + 1}) {
      const Timeline timeline = testing::timed(v_half({depth, n}), SplitCosts{1, 1, 1});
      const double bubble =
          depth % 2 == 0 ? 1.75 * static_cast<double>(depth) - 1 : 1.75 * static_cast<double>(depth - 1);
      EXPECT_NEAR(timeline.makespan, static_cast<double>(3 * n) + bubble, 1e-9)
          << testing::describe("v-half", {depth, n});
      EXPECT_EQ(testing::most_in_flight(timeline), 2 * ((depth + 2) / 2)) << testing::describe("v-half", {depth, n});
    }
  }
}

TEST(VHalfTest, UnequalCostsMakeItALittleSlower) {
  const SplitCosts costs{1, 1.3, 0.7};
  EXPECT_NEAR(v_half_makespan({8, 16}, costs, 0.1), 70, 1e-9);
  EXPECT_NEAR(v_half_makespan({8, 32}, costs, 0.1) - v_half_makespan({8, 16}, costs, 0.1), 16 * 3.15, 1e-9);
}

TEST(VHalfTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)v_half({0, 4}), ConfigError);
  EXPECT_THROW((void)v_half({4, 0}), ConfigError);
  EXPECT_THROW((void)v_half({10'000, 2'000}), ConfigError);  // 1.2e8 ops
}

}  // namespace
}  // namespace chimera
