// Loss spikes: detection, and the steps that a run then skips.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "support/message_of.h"
#include "support/scratch.h"
#include "support/synced.h"
#include "telemetry/metrics.h"
#include "train/setup/job_checkpoints.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Scratch;

/// Losses around 3, alternately two above and two below.
LossWatch settled(std::int64_t losses) {
  LossWatch watch;
  for (std::int64_t i = 0; i < losses; ++i) watch.note(i % 4 < 2 ? 2.9 : 3.1);
  return watch;
}

TEST(LossWatchTest, MeasuresDeviationsAboveTheExpectedLoss) {
  const LossWatch watch = settled(400);
  EXPECT_NEAR(watch.expected(), 3, 0.1);
  EXPECT_NEAR(watch.deviation(), 0.1, 0.03);
  EXPECT_NEAR(watch.deviations_above(watch.expected() + 5 * watch.deviation()), 5, 1e-9);
  EXPECT_EQ(watch.deviations_above(2), 0) << "below";
}

/// Weights of the losses in a mean whose last member has weight `weight` and whose first members have equal weights.
std::vector<double> weights(std::size_t count, double weight) {
  std::vector<double> all;
  for (std::size_t i = 0; i < count; ++i) {
    const double last = std::max(1.0 / static_cast<double>(i + 1), weight);
    for (double& earlier : all) earlier *= 1 - last;
    all.push_back(last);
  }
  return all;
}

double weighted_mean(const std::vector<double>& values, double weight) {
  const std::vector<double> counts = weights(values.size(), weight);
  return std::inner_product(values.begin(), values.end(), counts.begin(), 0.0);
}

TEST(LossWatchTest, HasTheWeightedSumsOfAllLosses) {
  constexpr int kLosses = 130;
  std::vector<double> losses, distances;
  LossWatch watch;
  for (int i = 0; i < kLosses; ++i) {
    const double loss = 2 + std::sin(0.7 * i) + 5.0 / (1 + i);
    if (i > 0) distances.push_back(loss - weighted_mean(losses, LossWatch::kWeight));
    losses.push_back(loss);
    watch.note(loss);
  }
  const double mean = weighted_mean(distances, LossWatch::kDistanceWeight);
  std::vector<double> squares;
  for (const double distance : distances) squares.push_back((distance - mean) * (distance - mean));
  EXPECT_NEAR(watch.mean, weighted_mean(losses, LossWatch::kWeight), 1e-12);
  EXPECT_NEAR(watch.distance, mean, 1e-12);
  EXPECT_NEAR(watch.variance, weighted_mean(squares, LossWatch::kDistanceWeight), 1e-12);
}

TEST(LossWatchTest, WarmsUpFirst) {
  EXPECT_EQ(settled(LossWatch::kWarmUp - 1).deviations_above(100), 0);
  EXPECT_GT(settled(LossWatch::kWarmUp).deviations_above(100), 100);
}

TEST(LossWatchTest, NearlyConstantLossHasNoSpikes) {
  LossWatch watch;
  for (int i = 0; i < 100; ++i) watch.note(4);
  EXPECT_LT(watch.deviations_above(4.01), 1);
  EXPECT_GT(watch.deviations_above(4.5), 5);
}

TEST(LossWatchTest, FallingLossHasNoSpikesAndHidesNone) {
  LossWatch watch;
  for (int i = 0; i < 200; ++i) {
    const double loss = 2 + 8 * std::exp(-i / 30.0) + 0.02 * std::sin(i);
    EXPECT_LT(watch.deviations_above(loss), 3) << i;
    if (i == 30) EXPECT_GT(watch.deviations_above(loss + 3), 5) << "as far as it fell in the last 15 steps";
    watch.note(loss);
  }
}

TEST(LeftOutStepsTest, AreStoredInAFile) {
  const Scratch scratch;
  EXPECT_THAT(read_left_out(scratch.path("")), IsEmpty());
  const std::vector<LeftOutSteps> ranges = {{28, 37}, {90, 90}};
  static_cast<void>(testing::take_synced_paths());
  write_left_out(scratch.path(""), ranges);
  const auto synced = testing::take_synced_paths();
  ASSERT_EQ(synced.size(), 2U) << "without the file, a restarted run would train on the steps";
  EXPECT_THAT(synced[0], HasSubstr(std::string(kLeftOutName) + ".tmp"));
  EXPECT_EQ(synced[1], std::filesystem::canonical(scratch.path("")));
  EXPECT_EQ(read_left_out(scratch.path("")), ranges);
  EXPECT_TRUE(leaves_out(ranges, 28) && leaves_out(ranges, 37) && leaves_out(ranges, 90));
  EXPECT_FALSE(leaves_out(ranges, 27) || leaves_out(ranges, 38));
  forget_left_out(scratch.path(""));
  EXPECT_THAT(read_left_out(scratch.path("")), IsEmpty());
  EXPECT_NO_THROW(forget_left_out(scratch.path("")));
}

TEST(LeftOutStepsTest, AFileThatWasChangedIsRefused) {
  const Scratch scratch;
  write_left_out(scratch.path(""), {{28, 37}});
  std::string text = testing::read_file(scratch.path(kLeftOutName));
  text[text.find("37") + 1] = '8';
  for (const std::string& changed : {text, std::string("{}"), std::string()}) {
    std::ofstream(scratch.path(kLeftOutName)) << changed;
    EXPECT_THAT(testing::message_of([&] { static_cast<void>(read_left_out(scratch.path(""))); }, "accepted"),
                HasSubstr("remove it to run all steps"));
  }
}

}  // namespace
}  // namespace chimera
