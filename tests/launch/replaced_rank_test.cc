
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "job.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using ::testing::MatchesRegex;
using testing::ProgramResult;

class ReplacedRankTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ::setenv("LAUNCH_TEST_RECOVERIES", "3", 1);
    if (GetParam()) ::setenv("LAUNCH_TEST_FORKS", "1", 1);
  }
  void TearDown() override {
    ::unsetenv("LAUNCH_TEST_RECOVERIES");
    ::unsetenv("LAUNCH_TEST_FORKS");
  }
};

void expect_recovery(const ProgramResult& result, const std::string& reason) {
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  expect_clean(result);
  EXPECT_THAT(result.messages, MatchesRegex("chimera: " + reason +
                                            " in step 5; recovery 1 of 3: continues with step 5 after [0-9.]+ s\n"));
  for (const char* rank : {"rank 0", "rank 1", "rank 2"})
    EXPECT_THAT(result.output, HasSubstr(std::string(rank) + " in epoch 1\n"));
}

TEST_P(ReplacedRankTest, JobContinuesAfterAKill) {
  expect_recovery(Job("outlive be-lost outlive").wait(), "rank 1 was killed by signal 9 .Killed.");
}

TEST_P(ReplacedRankTest, TwoCanBeLostAtOnce) {
  expect_recovery(Job("be-lost outlive be-lost").wait(),
                  "rank [02] was killed by signal 9 .Killed.; rank [02] was killed by signal 9 .Killed.");
}

TEST_P(ReplacedRankTest, RanksThatWaitForOneAnotherConnectAgain) {
  const std::chrono::milliseconds hang(500);
  const ProgramResult result = Job("outlive-deadlock be-lost-in-deadlock", "", hang).wait();
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.messages, MatchesRegex("chimera: rank 1 was killed by signal 9 .Killed.; rank 0 has made no "
                                            "progress for [0-9.]+ s: like the others, it waits at joining the other "
                                            "ranks in step 5; recovery 2 of 3: continues with step 5 after .*\n"));
}

TEST_P(ReplacedRankTest, JobWithoutReplicasEndsWithTheReason) {
  const ProgramResult result = Job("be-lost be-lost").wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("chimera: not recovered: no rank is left that holds stage 0\n"));
  EXPECT_THAT(result.messages, HasSubstr("was killed by signal 9 (Killed)\n"));
}

TEST_P(ReplacedRankTest, JobBeforeItsFirstStepIsNotRecovered) {
  const ProgramResult result = Job("wait exit-7 wait").wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.messages, "chimera: rank 1 exited with code 7\n");
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReplacedRankTest, ::testing::Values(false, true),
                         [](const auto& forked) { return std::string(forked.param ? "Forked" : "Executed"); });

}  // namespace
}  // namespace chimera
