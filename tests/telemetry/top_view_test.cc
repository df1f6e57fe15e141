#include "telemetry/top_view.h"
#include "core/json.h"
#include "core/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TopView view_of(std::int64_t steps, const std::string& planned) {
  TopView view;
  view.run.name = "run";
  for (std::int64_t step = 1; step <= steps; ++step) {
    view.run.steps.push_back({.step = step,
                              .loss = 6 - 0.1 * static_cast<double>(step),
                              .step_seconds = step == 5 ? 3.0 : 0.5,
                              .tokens_per_second = 1000,
                              .peak_memory_bytes = 1 << 20,
                              .seconds_left = 90});
  }
  if (!planned.empty()) view.run.configuration = {{"hyperparameters.steps", planned}};
  view.seconds_since_last = 30;
  return view;
}

TEST(TopViewTest, ShowsTheProgressOfTheRun) {
  const std::string text = to_text(view_of(10, "40"), 80);
  EXPECT_THAT(text, HasSubstr("step      10 of 40"));
  EXPECT_THAT(text, HasSubstr("25 %"));
  EXPECT_THAT(text, HasSubstr("slowest of the last 10: step 5, 3.000 s, 6.0 times the median"));
  EXPECT_THAT(text, HasSubstr("no process on this host writes it"));
  EXPECT_THAT(to_text(view_of(40, "40"), 80), HasSubstr("ended; all steps are done"));
  EXPECT_THAT(to_text(view_of(0, ""), 80), HasSubstr("no step yet"));
}

TEST(TopViewTest, ShowsTheMemoryOfAGpu) {
  TopView view = view_of(3, "");
  EXPECT_THAT(to_text(view, 80), HasSubstr("memory    1 MiB at most in one process"));
  EXPECT_FALSE(read_json(to_json(view)).contains("used_memory_bytes"));
  view.run.steps.back().used_memory_bytes = 5 << 20;
  EXPECT_THAT(to_text(view, 80), HasSubstr("memory    of one GPU: 5 MiB in use, tensors 1 MiB at most"));
  EXPECT_EQ(read_json(to_json(view))["used_memory_bytes"], 5 << 20);
}

TEST(TopViewTest, ShowsTheLastChangeOfTheOrder) {
  TopView view = view_of(3, "");
  EXPECT_THAT(to_text(view, 80), Not(HasSubstr("order")));
  view.run.steps = parse_metrics("m", R"({"step": 1, "order": "a"}
{"step": 2, "order": 7}
{"step": 3, "order": "rank 1 takes 2.1 times as long"}
)");
  EXPECT_THAT(to_text(view, 80), HasSubstr("\norder     step 3: rank 1 takes 2.1 times as long\n"));
  EXPECT_EQ(read_json(to_json(view))["order_changes"],
            nlohmann::json({"step 1: a", "step 3: rank 1 takes 2.1 times as long"}));
}

TEST(TopViewTest, SaysThatAUtilizationAboveAllOfThePeakIsImpossible) {
  TopView view = view_of(3, "");
  view.run.steps.back().utilization = 0.41;
  EXPECT_THAT(to_text(view, 80), HasSubstr("   MFU 41.0 %\n"));
  view.run.steps.back().utilization = 2.856;
  EXPECT_THAT(to_text(view, 80), HasSubstr("   MFU 285.6 % (impossible: matrix_flops of --machine or the peak of"));
}

TEST(TopViewTest, BarsFitANarrowTerminal) {
  std::istringstream lines(to_text(view_of(40, ""), 20));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("▁") != std::string::npos) EXPECT_EQ(line, clip_lines(line, 20));
  }
}

TEST(TopViewTest, TimeAdvancesDuringTheRun) {
  TopView view = view_of(10, "40");
  EXPECT_EQ(read_json(to_json(view))["eta_seconds"], 90);
  view.process = 17;
  EXPECT_EQ(read_json(to_json(view))["eta_seconds"], 60);
  EXPECT_EQ(read_json(to_json(view))["state"], "running");
}

TEST(TopViewTest, ShowsRanksAndNamesTheStraggler) {
  TopView view = view_of(10, "");
  view.process = 17;
  view.ranks = {{11, "1F3", 0.75}, {11, "2B1", 0.0}, {11, "3F0", 0.75}, {11, "0F2", 0.7}};
  view.stragglers = {1};
  const std::string text = to_text(view, 80);
  EXPECT_THAT(text, HasSubstr("ranks wait for each other 55 % of their time"));
  EXPECT_THAT(text, HasSubstr("   1        -       11  2B1                          "
                              "··········   0 %  straggler"));
  const auto json = read_json(to_json(view));
  EXPECT_EQ(json["stragglers"], nlohmann::json({1}));
  EXPECT_EQ(json["ranks"][0]["doing"], "1F3");
  EXPECT_NEAR(json["waiting_share"].get<double>(), 0.55, 1e-12);
}

TEST(TopViewTest, ShowsTheTotalOfALiveRunBeforeItsFirstCheckpoint) {
  TopView view = view_of(10, "");
  view.live_steps = 40;
  EXPECT_THAT(to_text(view, 80), HasSubstr("step      10 of 40"));
  EXPECT_EQ(read_json(to_json(view))["steps"], 40);
}

TEST(TopViewTest, LostRanksNeitherWaitNorMakeOthersStragglers) {
  TopView view = view_of(10, "");
  view.ranks = {{11, "2B1", 0.1, 71}, {.doing = "lost", .is_here = false}, {.doing = "lost", .is_here = false}};
  const std::string text = to_text(view, 80);
  EXPECT_THAT(text, HasSubstr("   0       71       11  2B1"));
  EXPECT_THAT(text, HasSubstr("   1        -        -  lost\n"));
  EXPECT_THAT(text, Not(HasSubstr("straggler")));
  EXPECT_THAT(text, Not(HasSubstr("wait for each other")));
  EXPECT_TRUE(read_json(to_json(view))["ranks"][1]["waiting"].is_null());
  EXPECT_EQ(read_json(to_json(view))["ranks"][0]["process"], 71);
}

TEST(TopViewTest, OmitsRanksIfThereAreNone) {
  EXPECT_THAT(to_text(view_of(3, ""), 80), Not(HasSubstr("rank")));
  EXPECT_TRUE(read_json(to_json(view_of(3, "")))["waiting_share"].is_null());
}

}  // namespace
}  // namespace chimera
