// Ranks that die or fail at every point of a run: the reported rank, and leftovers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "training.h"

namespace chimera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

constexpr int kRanks = 4;

/// Four ranks, one micro-batch per direction, six steps.
Words four_ranks(const Scratch& scratch) { return small_training(scratch) + "--model gpt2-tiny --stages 4 --steps 6"; }

/// Runs with a fault; the run must leave nothing, and no truncated metrics line.
ProgramResult run_with_fault(const std::string& fault, const Scratch& scratch, const Words& flags = {},
                             int ranks = kRanks) {
  const ProgramResult result =
      ProgramRun(four_ranks(scratch) + flags, {.environment = {"CHIMERA_FAULT=" + fault}, .ranks = ranks}).wait();
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

std::string fault_name_of(const ::testing::TestParamInfo<Fault>& fault) {
  std::string name = fault.param.point + "_rank_" + std::to_string(fault.param.rank);
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Every point, on the first, a middle and the last rank. Faults within a step hit the third step, when other ranks are
/// busy.
std::vector<Fault> faults(const std::vector<int>& ranks) {
  std::vector<Fault> all;
  for (const char* point :
       {"start", "rendezvous", "connected", "step", "forward", "backward", "all-reduce", "sum", "optimizer"}) {
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

INSTANTIATE_TEST_SUITE_P(, TrainingKillTest, ::testing::ValuesIn(faults({0, 2, 3})), fault_name_of);

class TrainingThrowTest : public ::testing::TestWithParam<Fault> {};

/// The other ranks lose their connection to it and report nothing.
TEST_P(TrainingThrowTest, NamesTheFailedRankItsOpAndTheReason) {
  const Fault& fault = GetParam();
  const Scratch scratch;
  const ProgramResult result = run_with_fault(fault.text("throw"), scratch);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.orphans, 0);
  const std::string what = fault.point == "sum" ? "rank 1: all-reduce of stage [0-3]: " : "";
  EXPECT_THAT(complaints(result),
              ElementsAre(MatchesRegex("chimera: rank " + std::to_string(fault.rank) + " failed at [^:]+: " + what +
                                       "fault injected at " + fault.point)));
}

INSTANTIATE_TEST_SUITE_P(, TrainingThrowTest, ::testing::ValuesIn(faults({1})), fault_name_of);

TEST(TrainingFaultTest, NamesTheOpOfAFailure) {
  const Scratch scratch;
  EXPECT_THAT(complaints(run_with_fault("throw@backward:3:2", scratch)),
              ElementsAre("chimera: rank 3 failed at 3B1: fault injected at backward"));
}

struct Spoiled {
  std::string fault;
  std::string line;  // a regular expression, after "chimera: "
};

/// The README's schedule: worker 1 runs 1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1, worker 3 0F2 0F3 3F0 ...
const Spoiled kSpoiled[] = {
    {"nan@forward:1:3", "rank 1 failed at 1F1: the output of stage 1 for micro-batch 1 is not finite in step 1"},
    {"nan@forward:1:12", "rank 1 failed at 2F3: the output of stage 2 for micro-batch 3 is not finite in step 3"},
    {"nan@forward:3:3", "rank 3 failed at 3F0: the loss of micro-batch 0 .stage 3. is not finite in step 1"},
    {"nan@backward:1:7",
     "rank 1 failed at 2B3: the gradient that stage 2 passes back for micro-batch 3 is not finite in step 2"},
    {"nan@all-reduce:1:1",
     "rank 1 failed at sum norms and losses: the gradient of h.[12].[a-z0-9_.]+ is not finite in step 1"}};

TEST(TrainingFaultTest, NonFiniteNumberIsTracedToItsTensor) {
  for (const char* transport : {"processes", "threads"}) {
    for (const auto& [fault, line] : kSpoiled) {
      const bool processes = std::string(transport) == "processes";
      const Scratch scratch;
      const auto result = run_with_fault(fault, scratch, {"--transport", transport}, processes ? kRanks : 0);
      EXPECT_EQ(result.exit_code, 1) << fault;
      EXPECT_EQ(result.orphans, 0);
      EXPECT_THAT(complaints(result), ElementsAre(MatchesRegex("chimera: " + line + "; try a lower --learning-rate")));
    }
  }
}

TEST(TrainingFaultTest, NonFiniteNumberIsTracedToItsGroup) {
  const Scratch scratch;
  const auto result = run_with_fault(
      "nan@forward:3:2", scratch,
      "--schedule 1f1b --stages 2 --micro-batches 2 --data-parallel 2 --replica-layout far --reduction canonical");
  EXPECT_THAT(
      complaints(result),
      ElementsAre("chimera: rank 3 failed at 1F1: the loss of micro-batch 1 (stage 1) of data-parallel group 1 is "
                  "not finite in step 1; try a lower --learning-rate"));
}

TEST(TrainingFaultTest, ADivergingRunEndsInTheStepThatDiverges) {
  const Scratch scratch;
  const ProgramResult result = run_program(four_ranks(scratch) + "--learning-rate 1e100 --clip 0");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(complaints(result),
              ElementsAre(MatchesRegex("chimera: rank [0-3] failed at [0-9]F[0-9]: the (loss|output) "
                                       ".* is not finite in step 2; try a lower --learning-rate")));
  EXPECT_EQ(read_metrics(scratch.path("metrics.jsonl")).size(), 1U);
}

TEST(TrainingFaultTest, AStoppedRankIsAHang) {
  const Scratch scratch;
  const auto result = ProgramRun(four_ranks(scratch) + "--hang-seconds 2",
                                 {.environment = {"CHIMERA_FAULT=stop@backward:2:6"}, .ranks = kRanks})
                          .wait();
  EXPECT_EQ(result.exit_code, 1);
  expect_clean(result);
  EXPECT_THAT(complaints(result),
              ElementsAre(MatchesRegex("chimera: rank 2 has made no progress for [0-9.]+ s: stopped by a signal at "
                                       "[12]B[0-9] in step 2")));
}

TEST(TrainingFaultTest, ThreadsNameTheRankThatFailedFirst) {
  for (const char* point : {"step", "forward", "backward", "all-reduce", "optimizer"}) {
    const Scratch scratch;
    const Fault fault{point, 2, 1};
    const ProgramResult result = ProgramRun(four_ranks(scratch) + "--transport threads",
                                            {.environment = {"CHIMERA_FAULT=" + fault.text("throw")}})
                                     .wait();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(complaints(result), ElementsAre(MatchesRegex("chimera: rank 2 failed at [^:]+: fault injected at .*" +
                                                             std::string(point))));
  }
}

TEST(TrainingFaultTest, NamesAHangingRankThread) {
  const Scratch scratch;
  const auto result = ProgramRun(four_ranks(scratch) + "--transport threads --hang-seconds 0.5",
                                 {.environment = {"CHIMERA_FAULT=hang@backward:2:6"}})
                          .wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(complaints(result),
              ElementsAre(MatchesRegex("chimera: rank 2 has made no progress for [0-9.]+ s: it hangs at "
                                       "[12]B[0-9] in step 2")));
}

struct Flipped {
  Words flags;
  std::string fault;
  std::string line;  // a regular expression, after "chimera: rank N failed at step S: the copies of "
};

/// Rank 2 holds replicas of stage 1, also on rank 1, and of stage 2, also on ranks 1 and 2.
const Flipped kFlipped[] = {
    {{},
     "flip@updated:2:3",
     "rank 2 failed at step 6: the copies of stage 1 on ranks 1, 2 differ after step 6, and no majority"},
    {"--reduction canonical", "flip@updated:3:10",
     "rank 3 failed at step 10: the copies of stage 0 on ranks 0, 3 differ after step 10, and no majority"},
    {"--schedule pipedream --stages 1 --micro-batches 2 --data-parallel 3", "flip@updated:1:1",
     "rank 1 failed at step 6: the copies of stage 0 on ranks 0, 1, 2 differ after step 6, and the copy of rank 1 is "
     "not equal to the others"}};

TEST(TrainingFaultTest, DetectsAFlippedBitInAReplica) {
  for (const auto& [flags, fault, line] : kFlipped) {
    const Scratch scratch;
    const auto result =
        ProgramRun(four_ranks(scratch) + "--transport threads" + (fault.ends_with("10") ? "--steps 12" : "") + flags,
                   {.environment = {"CHIMERA_FAULT=" + fault}})
            .wait();
    EXPECT_EQ(result.exit_code, 1) << fault;
    EXPECT_THAT(complaints(result), ElementsAre(::testing::StartsWith("chimera: " + line)));
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
  ProgramRun run(four_ranks(scratch) + "--micro-batches 64", {.ranks = kRanks});
  run.await_message("step 2/6");
  run.send(run.rank(1), SIGKILL);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 1);
  expect_clean(result);
  EXPECT_THAT(complaints(result), ElementsAre("chimera: rank 1 was killed by signal 9 (Killed)"));
  EXPECT_GE(read_metrics(scratch.path("metrics.jsonl")).size(), 2U);
}

TEST(TrainingFaultTest, NothingOutlivesALauncherKilledFromOutside) {
  const Scratch scratch;
  ProgramRun run(four_ranks(scratch) + "--micro-batches 64", {.ranks = kRanks});
  run.await_message("step 2/6");
  run.send(run.process(), SIGKILL);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.killed_by, SIGKILL);
  EXPECT_EQ(result.orphans, kRanks);
  EXPECT_FALSE(result.left_files);
  EXPECT_GE(read_metrics(scratch.path("metrics.jsonl")).size(), 2U);
}

}  // namespace
}  // namespace chimera::testing
