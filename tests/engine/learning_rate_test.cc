#include "engine/optimizer_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/paths.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LearningRateTest, WarmsUpThenFollowsACosineToATenthInTheLastStep) {
  const LearningRate rate{.peak = 1, .warmup = 4};
  EXPECT_DOUBLE_EQ(rate.at(0, 14), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(3, 14), 1);
  EXPECT_LT(rate.at(4, 14), 1) << "one step has the peak";
  EXPECT_DOUBLE_EQ(rate.at(8, 14), 0.55);
  EXPECT_DOUBLE_EQ(rate.at(13, 14), 0.1);
}

// The file is written by tools/record_learning_rates. A run may be of PyTorch's schedulers or of transformers'.
TEST(LearningRateTest, IsThatOfOtherLibraries) {
  std::ifstream file(testing::source_path("/tests/fixtures/learning_rates.json"));
  std::map<std::string, int> runs;
  for (const auto& run : nlohmann::json::parse(file)) {
    LearningRate rate{.peak = run["peak"], .warmup = run["warmup"], .minimum = run["minimum"].get<double>()};
    rate.shape = parse_named<LearningRateShape>("shape", run["shape"].get<std::string>());
    if (run.contains("cooldown")) {
      rate.cooldown = run["cooldown"].get<std::int64_t>();
      rate.cooldown_shape = parse_named<CooldownShape>("shape", run["cooldown_shape"].get<std::string>());
    }
    const auto& expected = run["rates"];
    for (std::size_t step = 0; step < expected.size(); ++step)
      EXPECT_NEAR(rate.at(static_cast<std::int64_t>(step), run["steps"]), expected[step].get<double>(), 1e-15)
          << run["library"] << ": " << run["shape"] << " of " << run["steps"] << " steps, in step " << step;
    ++runs[run["library"].get<std::string>()];
  }
  EXPECT_EQ(runs["torch"], 11);
  EXPECT_EQ(runs["transformers"], 7);
}

TEST(LearningRateTest, TheLastStepHasTheMinimumAndOneStepHasThePeak) {
  for (const auto shape : {LearningRateShape::Cosine, LearningRateShape::Linear, LearningRateShape::Wsd}) {
    for (const std::int64_t steps : {2, 3, 9, 10, 19, 20, 100}) {
      for (const std::int64_t warmup : {0, 1, 2, 50}) {
        if (warmup >= steps) continue;
        const LearningRate rate{.peak = 1, .warmup = warmup, .minimum = 0.25, .shape = shape};
        int peaks = 0;
        for (std::int64_t step = 0; step < steps; ++step) peaks += rate.at(step, steps) == 1 ? 1 : 0;
        EXPECT_DOUBLE_EQ(rate.at(steps - 1, steps), 0.25) << to_text(shape) << " " << steps << " " << warmup;
        if (shape != LearningRateShape::Wsd) EXPECT_EQ(peaks, 1) << to_text(shape) << " " << steps << " " << warmup;
        EXPECT_GE(peaks, 1);
      }
    }
  }
  EXPECT_EQ(LearningRate{.peak = 1}.at(0, 1), 1) << "a single step";
}

TEST(LearningRateTest, CoolsDownInTheLastTenthByDefault) {
  const LearningRate rate{.peak = 1, .shape = LearningRateShape::Wsd};
  EXPECT_EQ(rate.cooldown_steps(200), 20);
  EXPECT_EQ(rate.at(179, 200), 1);
  EXPECT_DOUBLE_EQ(rate.at(189, 200), 0.55);
  EXPECT_EQ(rate.cooldown_steps(5), 1) << "at least one step";
  EXPECT_EQ(rate.at(3, 5), 1);
  EXPECT_DOUBLE_EQ(rate.at(4, 5), 0.1);
  EXPECT_EQ(LearningRate{}.cooldown_steps(200), 0) << "of no other shape";
}

TEST(LearningRateTest, ACooldownOfTheWholeRunBeginsAfterThePeak) {
  const LearningRate rate{.peak = 1, .minimum = 0, .shape = LearningRateShape::Wsd, .cooldown = 5};
  for (std::int64_t step = 0; step < 5; ++step)
    EXPECT_DOUBLE_EQ(rate.at(step, 5), 1 - 0.25 * static_cast<double>(step));
  const LearningRate warm{.peak = 1, .warmup = 2, .minimum = 0, .shape = LearningRateShape::Wsd, .cooldown = 3};
  EXPECT_DOUBLE_EQ(warm.at(1, 5), 1) << "the last step of the warm-up has the peak";
  EXPECT_DOUBLE_EQ(warm.at(4, 5), 0);
}

TEST(LearningRateTest, ACooldownOfOneStepIsTheLastStep) {
  const LearningRate rate{.peak = 1, .minimum = 0, .shape = LearningRateShape::Wsd, .cooldown = 1};
  EXPECT_EQ(rate.at(48, 50), 1);
  EXPECT_EQ(rate.at(49, 50), 0);
}

TEST(LearningRateTest, RejectsInvalidOptions) {
  EXPECT_EQ(find_invalid_option(LearningRate{}, 10), "");
  EXPECT_EQ(find_invalid_option(LearningRate{.peak = 0}, 10), "learning-rate must be above 0");
  EXPECT_EQ(find_invalid_option(LearningRate{.peak = 1, .minimum = 2}, 10),
            "min-learning-rate must be 0 to the learning rate, 1, not 2");
  EXPECT_THAT(find_invalid_option(LearningRate{.minimum = 0, .shape = LearningRateShape::Constant}, 10),
              HasSubstr("min-learning-rate has no effect on a constant learning rate"));
  EXPECT_EQ(find_invalid_option(LearningRate{.cooldown = 3}, 10), "cooldown is for --learning-rate-shape wsd");
  EXPECT_EQ(find_invalid_option(LearningRate{.warmup = 10}, 10), "");
  EXPECT_EQ(find_invalid_option(LearningRate{.warmup = 10, .shape = LearningRateShape::Constant}, 10), "");
  EXPECT_THAT(find_invalid_option(LearningRate{.warmup = 10, .shape = LearningRateShape::Wsd}, 10),
              StartsWith("warmup: 10 steps are the whole run"));
  EXPECT_EQ(find_invalid_option(LearningRate{.warmup = 11}, 10),
            "warmup: 11 steps are more than the run's 10; the learning rate would never reach its peak");
  const LearningRate rate{.warmup = 6, .shape = LearningRateShape::Wsd, .cooldown = 5};
  EXPECT_EQ(find_invalid_option(rate, 10), "cooldown: 5 steps of it and 6 of warm-up are more than the run's 10");
  EXPECT_EQ(find_invalid_option(rate, 11), "");
}

}  // namespace
}  // namespace chimera
