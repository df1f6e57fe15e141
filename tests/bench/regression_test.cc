#include "bench/statistics.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

TEST(RegressionTest, FindsALine) {
  const Line line = regress_line({{1000, 12}, {2000, 14}, {8000, 26}});
  EXPECT_NEAR(line.alpha, 10, 1e-9);
  EXPECT_NEAR(line.beta, 2e-3, 1e-12);
}

TEST(RegressionTest, CountsErrorsInProportion) {
  // The last point is 10 off its line, little relative to 2010. An error of 1 at the first point would be large
  // relative to 10.
  const Line line = regress_line({{0, 10}, {10, 20}, {20, 30}, {2000, 2020}});
  EXPECT_NEAR(line.alpha, 10, 0.2);
}

TEST(RegressionTest, NeverFallsBelowZero) {
  EXPECT_EQ(regress_line({{1000, 3}, {2000, 2}}).beta, 0);
  const Line steep = regress_line({{1000, 1}, {2000, 4}});
  EXPECT_EQ(steep.alpha, 0);
  EXPECT_GT(steep.beta, 1e-3);
}

TEST(RegressionTest, FindsTheBurst) {
  const auto seconds = [](double bytes) { return 0.5 + 1e-3 * std::max(0.0, bytes - 3000); };
  std::vector<TimedSize> points;
  for (double bytes = 1024; bytes <= 4 << 20; bytes *= 2) points.push_back({bytes, seconds(bytes)});
  for (TimedSize& point : points) {
    // both directions at once
    if (point.bytes > 1024 && point.bytes < 64 << 10) point.seconds = 0.5 + 0.5e-3 * point.bytes;
  }
  const Line line = regress_with_burst(points);
  EXPECT_NEAR(line.burst, 3000, 1e-3);
  EXPECT_NEAR(line.alpha, 0.5, 1e-12);
  EXPECT_NEAR(line.beta, 1e-3, 1e-12);
}

TEST(RegressionTest, NoBurstIsNegative) {
  std::vector<TimedSize> points;
  for (double bytes = 1024; bytes <= 1 << 20; bytes *= 2) points.push_back({bytes, 0.5 + 1e-3 * bytes});
  for (TimedSize& point : points) point.seconds += point.bytes >= 64 << 10 ? 20 : 0;
  EXPECT_EQ(regress_with_burst(points).burst, 0);
}

TEST(RegressionTest, WithoutLongMessagesNoBurstIsKnown) {
  const Line line = regress_with_burst({{1000, 12}, {2000, 12}, {4000, 12}, {8000, 28}});
  EXPECT_EQ(line.burst, 0);
  EXPECT_DOUBLE_EQ(line.beta, 2e-3);
}

TEST(RegressionTest, DelaysOfShortMessagesAreNoLatency) {
  const std::vector<TimedSize> points = without_delays({{1000, 80}, {2000, 12}, {4000, 90}, {8000, 28}});
  std::vector<double> seconds;
  for (const TimedSize& point : points) seconds.push_back(point.seconds);
  EXPECT_EQ(seconds, (std::vector<double>{12, 12, 28, 28}));
  EXPECT_DOUBLE_EQ(line_between_ends(points).beta, 2e-3);
}

TEST(RegressionTest, UsesOnlyTheEndsIfThereIsABurst) {
  const Line line = line_between_ends({{1000, 12}, {2000, 12}, {4000, 12}, {8000, 28}});
  EXPECT_EQ(line.alpha, 12);
  EXPECT_DOUBLE_EQ(line.beta, 2e-3);
  EXPECT_EQ(line_between_ends({{1000, 3}, {2000, 2}}).beta, 0);
}

}  // namespace
}  // namespace chimera
