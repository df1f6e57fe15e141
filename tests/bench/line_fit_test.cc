#include "bench/line_fit.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

TEST(LineFitTest, FindsALine) {
  const Line line = fit_line({{1000, 12}, {2000, 14}, {8000, 26}});
  EXPECT_NEAR(line.alpha, 10, 1e-9);
  EXPECT_NEAR(line.beta, 2e-3, 1e-12);
}

TEST(LineFitTest, CountsErrorsInProportion) {
  // The last point is 10 off its line, which is little of 2010; of the first, 1 would be much of 10.
  const Line line = fit_line({{0, 10}, {10, 20}, {20, 30}, {2000, 2020}});
  EXPECT_NEAR(line.alpha, 10, 0.2);
}

TEST(LineFitTest, NeverFallsBelowNought) {
  EXPECT_EQ(fit_line({{1000, 3}, {2000, 2}}).beta, 0);
  const Line steep = fit_line({{1000, 1}, {2000, 4}});
  EXPECT_EQ(steep.alpha, 0);
  EXPECT_GT(steep.beta, 1e-3);
}

TEST(LineFitTest, HeedsTheEndsAloneWhereABurstPasses) {
  const Line line = line_between_ends({{1000, 12}, {2000, 12}, {4000, 12}, {8000, 28}});
  EXPECT_EQ(line.alpha, 12);
  EXPECT_DOUBLE_EQ(line.beta, 2e-3);
  EXPECT_EQ(line_between_ends({{1000, 3}, {2000, 2}}).beta, 0);
}

}  // namespace
}  // namespace chimera
