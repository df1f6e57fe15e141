#include "paper/grouped_bars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count_of(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<std::size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

TEST(ChartTest, TicksAreRoundAndReachBothEnds) {
  EXPECT_THAT(ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(0, 0.7, 5), ElementsAre(0, ::testing::DoubleEq(0.2), ::testing::DoubleEq(0.4),
                                            ::testing::DoubleNear(0.6, 1e-12), ::testing::DoubleEq(0.8)));
  for (const auto& [least, most] : {std::pair{2.31, 5.64}, {-3.0, 7.0}, {1e9, 3e9}, {5.0, 5.0}, {0.0, 0.0}}) {
    const auto numbers = ticks(least, most, 5);
    EXPECT_LE(numbers.front(), least);
    EXPECT_GE(numbers.back(), most);
    EXPECT_GE(numbers.size(), 2U);
    EXPECT_LE(numbers.size(), 8U);
  }
}

TEST(ChartTest, DrawsACurveForEachSeries) {
  const std::string svg = to_svg(LineChart{.title = "Loss <1>",
                                           .x_label = "step",
                                           .y_label = "nats",
                                           .series = {{"a", {{1, 5}, {2, 4}}}, {"b", {{1, 6}, {2, 3}}}}});
  EXPECT_THAT(svg, HasSubstr("Loss &lt;1&gt;"));
  EXPECT_EQ(count_of(svg, "stroke-width=\"1.8\""), 2U);
  EXPECT_EQ(count_of(svg, ">[ab]</text>"), 2U);  // the legend
}

TEST(ChartTest, AnEqualSeriesIsDashedInTheSameColor) {
  const std::string svg =
      to_svg(LineChart{.title = "t",
                       .x_label = "",
                       .y_label = "",
                       .series = {{"a", {{1, 5}, {2, 4}}}, {"b", {{1, 6}, {2, 3}}, CurveStyle::Marks, 0}}});
  EXPECT_EQ(count_of(svg, "class=\"s0\"[^>]*stroke-width=\"1.8\""), 2U);
  EXPECT_EQ(count_of(svg, "stroke-width=\"1.8\"[^>]*stroke-dasharray"), 1U);
}

TEST(ChartTest, DrawsGapsAndEmptyCharts) {
  const double nan = std::nan("");
  const std::string gap =
      to_svg(LineChart{.title = "t", .x_label = "", .y_label = "", .series = {{"a", {{1, 5}, {2, nan}, {3, 4}}}}});
  EXPECT_THAT(gap, Not(HasSubstr("nan")));
  EXPECT_EQ(count_of(gap, "M[0-9. ]+M"), 1U);
  EXPECT_THAT(to_svg(LineChart{.title = "t", .x_label = "", .y_label = "", .series = {}}), HasSubstr("no numbers yet"));
}

TEST(ChartTest, ThinsLongCurvesAndKeepsTheirPeaks) {
  Series series{"a", {}};
  for (int i = 0; i < 100'000; ++i) series.points.emplace_back(i, i == 54'321 ? 100 : 1);
  const std::string svg = to_svg(LineChart{.title = "t", .x_label = "", .y_label = "", .series = {series}});
  EXPECT_LT(svg.size(), 60'000U);
  series.points[54'321].second = 1;
  EXPECT_NE(svg, to_svg(LineChart{.title = "t", .x_label = "", .y_label = "", .series = {series}}));
}

TEST(ChartTest, BarsShowTheirValuesAndMissingValues) {
  const std::string svg = to_svg(GroupedBars{.title = "t",
                                             .y_label = "GB",
                                             .series = {"measured", "ours"},
                                             .groups = {{"W8 D4", {7.89, 8.01}}, {"W4 D8", {std::nullopt, 9.2}}},
                                             .absent = "OOM"});
  EXPECT_THAT(svg, HasSubstr(">7.89<"));
  EXPECT_THAT(svg, HasSubstr(">OOM<"));
  EXPECT_EQ(count_of(svg, "<rect[^>]*><title>"), 3U);
}

TEST(ChartTest, PagesHaveADarkColorScheme) { EXPECT_THAT(chart_style(), HasSubstr("prefers-color-scheme: dark")); }

}  // namespace
}  // namespace chimera
