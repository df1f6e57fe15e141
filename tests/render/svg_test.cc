#include "render/svg.h"

#include <gtest/gtest.h>

#include <regex>

#include "generate/detours.h"
#include "panels.h"
#include "render/panel.h"

namespace chimera {
namespace {

using testing::count;

/// Name of the first element whose closing tag does not match; empty if the text is well-formed.
std::string first_unbalanced(const std::string& xml) {
  const std::regex tag(R"re(<(/?)([A-Za-z]+)((?:\s+[\w:-]+="[^"<]*")*)\s*(/?)>)re");
  std::vector<std::string> open;
  std::size_t end = 0;
  for (std::sregex_iterator it(xml.begin(), xml.end(), tag), last; it != last; ++it) {
    const std::string between = xml.substr(end, static_cast<std::size_t>(it->position()) - end);
    if (between.find('<') != std::string::npos) return "near: " + between;
    end = static_cast<std::size_t>(it->position() + it->length());
    const std::string name = (*it)[2];
    if ((*it)[1] == "/") {
      if (open.empty() || open.back() != name) return "/" + name;
      open.pop_back();
    } else if ((*it)[4] != "/") {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : open.back();
}

TEST(SvgTest, IsWellFormed) {
  EXPECT_EQ(first_unbalanced(to_svg(testing::panel_of("chimera", {4, 4}))), "");
  EXPECT_EQ(first_unbalanced("<svg><rect></svg>"), "/svg") << "the test sees a fault";
}

TEST(SvgTest, TheRowOfALostWorkerSaysSo) {
  const Generator& generator = find_generator("chimera-zb");
  const Schedule healthy = generator.generate(default_shape(generator, 4, 4));
  const Panel panel = paper_figure(make_detours({.healthy = healthy, .groups = 2, .slow = {{WorkerId(1)}}}).schedule);
  EXPECT_EQ(panel.title, "chimera-zb, D = 4, N = 4, W = 2, without worker 1");
  const std::string svg = to_svg(panel);
  EXPECT_EQ(first_unbalanced(svg), "");
  EXPECT_EQ(count(svg, ">lost<"), 1U);
}

TEST(SvgTest, HasOneBoxPerOpWithItsTitleAndLabel) {
  const Panel panel = testing::panel_of("chimera", {4, 4});
  const std::string svg = to_svg(panel);
  EXPECT_EQ(count(svg, "<rect class=\"F0\""), 8U) << "four stages, two micro-batches down";
  EXPECT_EQ(count(svg, "<rect class=\"F1\""), 8U);
  EXPECT_EQ(count(svg, "<rect class=\"B0\"") + count(svg, "<rect class=\"B1\""), 16U);
  EXPECT_EQ(count(svg, "<title>3B2: stage 3, micro-batch 2, replica 1, 4 to 6</title>"), 1U);
  EXPECT_EQ(count(svg, ">3B2</text>"), 1U);
}

TEST(SvgTest, SlicesAreNarrowBoxesInShades) {
  const std::string svg = to_svg(testing::panel_of("1f1b", {.stages = 2, .micro_batches = 2, .slices = 2}));
  EXPECT_EQ(first_unbalanced(svg), "");
  EXPECT_EQ(count(svg, "<rect class=\"F0-0\""), 4U) << "two stages, two micro-batches";
  EXPECT_EQ(count(svg, "<rect class=\"F0-1\""), 4U);
  EXPECT_EQ(count(svg, ">1F0.1</text>"), 1U);
  EXPECT_EQ(count(svg, "<title>0F0.1: stage 0, micro-batch 0, slice 1, replica 0, 0.5 to 1</title>"), 1U);
  EXPECT_EQ(count(svg, "later slices are paler"), 1U);
}

TEST(SvgTest, ShowsWhatTheExplanationHolds) {
  const std::string svg = to_svg(testing::panel_of("chimera", {4, 4}));
  EXPECT_EQ(count(svg, "<title>idle: dependency, waits for 2F2 on worker 1, 2 to 3</title>"), 1U);
  EXPECT_EQ(count(svg, "<title>idle: imbalance, 15 to 16</title>"), 1U);
  EXPECT_EQ(count(svg, "<title>all-reduce of stage 1, 14 to 15.5</title>"), 1U);
  EXPECT_EQ(count(svg, "<title>memory, at most 2 stage units</title>"), 1U);
  EXPECT_EQ(count(svg, "<path class=\"critical\""), 3U) << "two ops, and the legend";
  EXPECT_EQ(count(svg, "<text class=\"note\""), 12U)
      << "F, B, down, up, all-reduce, four causes, critical path, memory; and the sums";
}

TEST(SvgTest, FramesPairsAndStacksPairsThatRunTogether) {
  Schedule schedule = find_generator("gpipe").generate({1, 2});
  schedule.workers[0][1].paired = true;
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  const std::string in_order = to_svg(panel_of(schedule, simulate(schedule, costs), costs));
  EXPECT_EQ(count(in_order, "<path class=\"pair\""), 2) << "the frame, and the legend's";
  EXPECT_EQ(count(in_order, "class=\"op half\""), 0);
  costs.pair = 0.8;
  const std::string together = to_svg(panel_of(schedule, simulate(schedule, costs), costs));
  EXPECT_EQ(count(together, "<path class=\"pair\""), 2);
  EXPECT_EQ(count(together, "class=\"op half\""), 2);
  EXPECT_EQ(count(together, "height=\"11\""), 2);
  const std::string alone = to_svg(panel_of(without_pairs(schedule), simulate(schedule, costs), costs));
  EXPECT_EQ(count(alone, "pair"), 0);
}

/// The number in the first match of `pattern`.
double number_in(const std::string& svg, const std::string& pattern) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(svg, found, std::regex(pattern))) << pattern;
  return found.empty() ? 0 : std::stod(found[1]);
}

TEST(SvgTest, PicturesWithOneAxisHaveEqualOpsAndFitTheirWidth) {
  const std::vector<Panel> panels = {testing::panel_of("chimera", {4, 4}), testing::panel_of("gpipe", {4, 8})};
  const SvgAxis axis = common_axis(panels, 900);
  EXPECT_EQ(axis.length, panels[1].timeline.makespan);
  for (const Panel& panel : panels) {
    const std::string svg = to_svg(panel, axis);
    EXPECT_EQ(first_unbalanced(svg), "");
    EXPECT_EQ(number_in(svg, "<svg[^>]* width=\"([0-9.]+)\""), 900);
    EXPECT_NEAR(number_in(svg, "<rect class=\"F0\"[^>]* width=\"([0-9.]+)\""), (900 - 88) / axis.length - 0.75, 0.01);
    EXPECT_EQ(number_in(svg, "<text class=\"tick\" x=\"[0-9.]+\" y=\"36\">(30)<"), 30)
        << "also behind the shorter step";
    const std::regex legend("<text class=\"note\" x=\"([0-9.]+)\"[^>]*>([^<]*)<");
    for (std::sregex_iterator it(svg.begin(), svg.end(), legend), last; it != last; ++it)
      EXPECT_LE(std::stod((*it)[1]) + 6.3 * static_cast<double>((*it)[2].length()), 900 + 14) << (*it)[2];
  }
  EXPECT_EQ(common_axis({testing::panel_of("gpipe", {4, 100})}, 900).width, 88 + 14 * 200) << "ops stay visible";
}

TEST(SvgTest, NeedsNoExplanation) {
  Panel panel = testing::panel_of("1f1b", {4, 4});
  panel.explanation = {};
  const std::string svg = to_svg(panel);
  EXPECT_EQ(first_unbalanced(svg), "");
  EXPECT_EQ(count(svg, "idle"), 0U);
}

TEST(SvgTest, OpsThatTakeNoTimeAreDrawn) {
  Panel panel = testing::panel_of("gpipe", {2, 2});
  panel.timeline = testing::timed(panel.schedule, 0, 0);
  panel.explanation = {};
  const std::string svg = to_svg(panel);
  EXPECT_EQ(count(svg, "<rect class=\"F0\""), 4U);
  EXPECT_EQ(count(svg, "nan"), 0U) << svg;
  EXPECT_EQ(count(svg, "inf"), 0U) << svg;
}

TEST(SvgTest, NamesAreEscaped) {
  Panel panel = testing::panel_of("1f1b", {2, 2});
  panel.title = "</title><script>alert(1)</script> & \"mine\"";
  const std::string svg = to_svg(panel);
  EXPECT_EQ(first_unbalanced(svg), "");
  EXPECT_EQ(count(svg, "<script"), 0U);
  EXPECT_EQ(count(svg, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;mine&quot;"), 2U);
}

TEST(SvgTest, RefusesMoreThanItCanShow) {
  Panel panel;
  panel.schedule = find_generator("gpipe").generate({500, 400});
  EXPECT_THROW((void)to_svg(panel), ConfigError);
}

}  // namespace
}  // namespace chimera
