// Contests between shell commands that write metrics without training.

#include "bench/contest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "core/files.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string step(int number, double loss, double seconds) {
  return fmt::format(R"({{"step": {}, "loss": {}, "step_seconds": {}, "tokens_per_second": {}}}\n)", number, loss,
                     seconds, 1000 / seconds);
}

/// A shell command that reports a slow first step, then three more.
std::string trained(double loss, double seconds) {
  return fmt::format("printf '{}' >\"$CHIMERA_METRICS\"",
                     step(1, loss, 9) + step(2, loss, seconds) + step(3, loss, 2 * seconds) + step(4, loss, seconds));
}

/// These runs are too short to measure, so any disturbance is accepted.
constexpr ContestOptions kTwoRounds{.rounds = 2, .skipped = 1, .retries = 0, .most_disturbed = 1};

TEST(ContestTest, ScoresAreMediansOverTheStepsThatCount) {
  std::string said;
  const auto scores = run_contest({{"slow", trained(4, 0.5)}, {"fast", trained(4.004, 0.25)}}, kTwoRounds,
                                  [&](const std::string& words) { said += words; });
  EXPECT_THAT(scores[0].tokens_per_second, ElementsAre(2000, 2000));
  EXPECT_THAT(scores[1].step_seconds, ElementsAre(0.25, 0.25));
  EXPECT_EQ(speed_ratio(scores[1], scores[0]).median, 2);
  EXPECT_EQ(scores[0].loss_difference, 0);
  EXPECT_NEAR(scores[1].loss_difference, 0.001, 1e-12);
  EXPECT_THAT(said, HasSubstr(": 2000 4000\n"));
}

TEST(ContestTest, TheErrorOfARunBeginsALine) {
  std::string said;
  EXPECT_THROW((void)run_contest({{"fast", trained(4, 0.25)}, {"none", "exit 2"}}, kTwoRounds,
                                 [&](const std::string& words) { said += words; }),
               Error);
  EXPECT_THAT(said, EndsWith(": 4000\n"));
}

TEST(ContestTest, CopiesRunTogetherAndAddTheirSpeeds) {
  const auto scores = run_contest({{"two", trained(4, 0.5), 2}}, kTwoRounds, [](const std::string&) {});
  EXPECT_THAT(scores[0].tokens_per_second, ElementsAre(4000, 4000));
}

TEST(TrainingRunTest, RepeatsTheMessageOfAFailedCommand) {
  const TemporaryFolder folder;
  const auto failure_of = [&](const std::string& command) -> std::string {
    try {
      (void)TrainingRun(command, folder.file("metrics")).wait(0);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(failure_of("echo no such model >&2; exit 2"), HasSubstr("failed:\nno such model"));
  EXPECT_THAT(failure_of("true"), HasSubstr("wrote no more than 0 steps"));
  EXPECT_THAT(failure_of("echo nonsense >\"$CHIMERA_METRICS\""), HasSubstr("metrics cannot be read"));
}

TEST(TemporaryFolderTest, LeavesNothingBehind) {
  std::string file;
  {
    const TemporaryFolder folder;
    file = folder.file("x");
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
}

}  // namespace
}  // namespace chimera
