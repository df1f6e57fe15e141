// A rank that dies or fails, at every point of a run: who is named, how soon everything ends, and what is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "training.h"

namespace chimera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

constexpr std::chrono::seconds kEndsWithin{2};
constexpr int kRanks = 4;

/// Four ranks, one micro-batch a direction each, and progress lines for all six steps.
Arguments four_ranks(const Scratch& scratch) {
  return small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--stages", "4", "--steps", "6"};
}

/// Runs with a fault; nothing may be left of the run, nor any metrics line be cut.
ProgramResult run_with_fault(const std::string& fault, const Scratch& scratch, const Arguments& flags = {}) {
  const ProgramResult result =
      ProgramRun(four_ranks(scratch) + flags, {.environment = {"CHIMERA_FAULT=" + fault}, .ranks = kRanks}).wait();
  EXPECT_LT(result.ending_time, kEndsWithin);
  EXPECT_FALSE(result.left_files);
  EXPECT_LE(read_metrics(scratch.path("metrics.jsonl")).size(), 6U);
  return result;
}

struct Fault {
  std::string point;
  int rank = 0;
  int passage = 1;
  [[nodiscard]] std::string text(const std::string& action) const {
    return action + "@" + point + ":" + std::to_string(rank) + ":" + std::to_string(passage);
  }
};

std::string name_of(const ::testing::TestParamInfo<Fault>& fault) {
  std::string name = fault.param.point + "_rank_" + std::to_string(fault.param.rank);
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Every point, on the first, a middle and the last rank. Steps are ended in the third, when others are at work.
std::vector<Fault> faults(const std::vector<int>& ranks) {
  std::vector<Fault> all;
  for (const char* point :
       {"start", "rendezvous", "connected", "step", "forward", "backward", "all-reduce", "optimizer"}) {
    for (const int rank : ranks) all.push_back({point, rank, std::string(point) == "step" ? 3 : 1});
  }
  return all;
}

class TrainingKillTest : public ::testing::TestWithParam<Fault> {};

TEST_P(TrainingKillTest, NamesTheKilledRankAndEndsTheOthers) {
  const Scratch scratch;
  const ProgramResult result = run_with_fault(GetParam().text("kill"), scratch);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.orphans, 0);
  EXPECT_THAT(complaints(result),
              ElementsAre("chimera: rank " + std::to_string(GetParam().rank) + " was killed by signal 9 (Killed)"));
}

INSTANTIATE_TEST_SUITE_P(, TrainingKillTest, ::testing::ValuesIn(faults({0, 2, 3})), name_of);

class TrainingThrowTest : public ::testing::TestWithParam<Fault> {};

/// The others lose their connection to it, and say nothing of that.
TEST_P(TrainingThrowTest, NamesTheFailedRankWhatItDidAndWhy) {
  const Fault& fault = GetParam();
  const Scratch scratch;
  const ProgramResult result = run_with_fault(fault.text("throw"), scratch);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.orphans, 0);
  EXPECT_THAT(complaints(result), ElementsAre(MatchesRegex("chimera: rank " + std::to_string(fault.rank) +
                                                           " failed at [^:]+: fault injected at " + fault.point)));
}

INSTANTIATE_TEST_SUITE_P(, TrainingThrowTest, ::testing::ValuesIn(faults({1})), name_of);

TEST(TrainingFaultTest, NamesTheOpOfAFailure) {
  const Scratch scratch;
  EXPECT_THAT(complaints(run_with_fault("throw@backward:3:2", scratch)),
              ElementsAre("chimera: rank 3 failed at 3B1: fault injected at backward"));
}

TEST(TrainingFaultTest, ThreadsNameTheRankThatFailedFirst) {
  for (const char* point : {"step", "forward", "backward", "all-reduce", "optimizer"}) {
    const Scratch scratch;
    const Fault fault{point, 2, 1};
    const ProgramResult result = ProgramRun(four_ranks(scratch) + Arguments{"--transport", "threads"},
                                            {.environment = {"CHIMERA_FAULT=" + fault.text("throw")}})
                                     .wait();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(complaints(result), ElementsAre(MatchesRegex("chimera: rank 2 failed at [^:]+: fault injected at .*" +
                                                             std::string(point))));
  }
}

class TrainingLauncherDeathTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainingLauncherDeathTest, LeavesNothing) {
  const Scratch scratch;
  const ProgramResult result = run_with_fault(std::string("kill-launcher@") + GetParam() + ":1:1", scratch);
  EXPECT_EQ(result.killed_by, SIGKILL);
  EXPECT_THAT(complaints(result), ElementsAre()) << "who died can say nothing, and the ranks did not fail";
}

INSTANTIATE_TEST_SUITE_P(, TrainingLauncherDeathTest, ::testing::Values("start", "rendezvous", "step"));

TEST(TrainingFaultTest, ARankKilledFromOutsideIsNamed) {
  const Scratch scratch;
  ProgramRun run(four_ranks(scratch) + Arguments{"--micro-batches", "64"}, {.ranks = kRanks});
  run.await_message("step 2/6");
  run.send(run.rank(1), SIGKILL);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.orphans, 0);
  EXPECT_FALSE(result.left_files);
  EXPECT_LT(result.ending_time, kEndsWithin);
  EXPECT_THAT(complaints(result), ElementsAre("chimera: rank 1 was killed by signal 9 (Killed)"));
  EXPECT_GE(read_metrics(scratch.path("metrics.jsonl")).size(), 2U);
}

TEST(TrainingFaultTest, NothingOutlivesALauncherKilledFromOutside) {
  const Scratch scratch;
  ProgramRun run(four_ranks(scratch) + Arguments{"--micro-batches", "64"}, {.ranks = kRanks});
  run.await_message("step 2/6");
  run.send(run.process(), SIGKILL);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.killed_by, SIGKILL);
  EXPECT_EQ(result.orphans, kRanks);
  EXPECT_FALSE(result.left_files);
  EXPECT_LT(result.ending_time, kEndsWithin);
  EXPECT_GE(read_metrics(scratch.path("metrics.jsonl")).size(), 2U);
}

}  // namespace
}  // namespace chimera::testing
