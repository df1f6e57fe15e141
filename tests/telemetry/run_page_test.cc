#include "telemetry/run_page.h"

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
