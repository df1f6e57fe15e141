#include "telemetry/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "generate/registry.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunPage report() {
  const Schedule schedule = find_generator("chimera").generate({4, 4, 2});
  const CostModel costs =
      CostModel::uniform(schedule, {.forward = 1, .backward = 2, .input_gradient = 1, .weight_gradient = 1}, 0);
  RunPage made{
      .run = {.name = "gpt2-mini & chimera", .metrics = "", .steps = {}, .configuration = {{"layout.stages", "4"}}},
      .subtitle = "4 stages",
      .forecasts = {{"step time", "s", 0.9, 1.0}},
      .forecast_note = "from measured ops",
      .timelines = {panel_of(schedule, simulate(schedule, costs), costs)}};
  made.run.steps = {{.step = 1, .loss = 5, .step_seconds = 1}, {.step = 2, .loss = 4, .step_seconds = 1}};
  return made;
}

TEST(RunPageTest, HoldsTheResultsOfTheRun) {
  const std::string page = to_page(report());
  for (const char* heading : {"At a glance", "Loss", "Throughput and memory", "Predicted and measured",
                              "One step, worker by worker", "Optimization", "Configuration"}) {
    EXPECT_THAT(page, HasSubstr(std::string("<h2>") + heading + "</h2>"));
  }
  EXPECT_THAT(page, HasSubstr("-10.0 %"));
  EXPECT_THAT(page, HasSubstr("gpt2-mini &amp; chimera"));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">layout.stages</th><td>4</td>"));
}

TEST(RunPageTest, MeasuredAndSimulatedStepsHaveOneAxisAndScrollTogether) {
  RunPage two = report();
  two.timelines.push_back(two.timelines[0]);
  for (TimedOp& op : two.timelines[1].timeline.workers[0].ops) op = {2 * op.start, 2 * op.end};
  two.timelines[1].timeline.makespan *= 2;
  const std::string page = to_page(two);
  const auto first = page.find("<div class=\"picture\">");
  ASSERT_NE(first, page.npos);
  EXPECT_EQ(page.find("<div class=\"picture\">", first + 1), page.npos);
  std::vector<std::string> widths;
  const std::regex op("<rect class=\"F0\" x=\"72\"[^>]* width=\"([0-9.]+)\"");
  for (std::sregex_iterator it(page.begin(), page.end(), op), last; it != last; ++it) widths.push_back((*it)[1]);
  ASSERT_EQ(widths.size(), 2U) << "the first op of worker 0 in both pictures";
  EXPECT_NEAR(std::stod(widths[1]) + 0.75, 2 * (std::stod(widths[0]) + 0.75), 0.02) << "the second takes twice as long";
}

TEST(RunPageTest, LoadsNothing) {
  const std::string page = std::regex_replace(to_page(report()), std::regex("http://www.w3.org/2000/svg"), "");
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
}

TEST(RunPageTest, OmitsUnknownValues) {
  RunPage bare = report();
  bare.forecasts.clear();
  bare.timelines.clear();
  bare.run.configuration.clear();
  const std::string page = to_page(bare);
  EXPECT_THAT(page, Not(HasSubstr("Predicted")));
  EXPECT_THAT(page, Not(HasSubstr("Configuration")));
}

}  // namespace
}  // namespace chimera
