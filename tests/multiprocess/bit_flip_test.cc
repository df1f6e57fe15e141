// Bit flips in a message, a weight or optimizer state are detected and, if requested, repaired; the numbers equal those
// of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

/// kTwoCopies: ranks 0 and 3 hold stages 0 and 3, ranks 1 and 2 hold the others. kFourCopies: all ranks hold the single
/// stage.
const Words kTwoCopies = "--schedule chimera --stages 4 --micro-batches 8";
const Words kFourCopies = "--schedule 1f1b --stages 1 --micro-batches 2 --data-parallel 4";
const Words kThreads = "--transport threads";
const Words kRepair = "--on-different-copies repair";

Words flip_training(const Scratch& scratch, const Words& flags) {
  return small_training(scratch) + flags + "--model gpt2-tiny --steps 4 --reduction canonical --reduction-blocks 4";
}

const std::vector<nlohmann::json>& without_flips() {
  static const std::vector<nlohmann::json> numbers = [] {
    const Scratch scratch;
    EXPECT_EQ(run_program(flip_training(scratch, kTwoCopies + kThreads)).exit_code, 0);
    return numbers_in(scratch);
  }();
  return numbers;
}

/// Runs with a fault. Returns the lines of stderr.
std::vector<std::string> lines_of(const Scratch& scratch, const std::string& fault, const Words& flags, int exit_code) {
  const ProgramResult result =
      ProgramRun(flip_training(scratch, flags), {.environment = {"CHIMERA_FAULT=" + fault}}).wait();
  EXPECT_EQ(result.exit_code, exit_code) << result.messages;
  EXPECT_EQ(result.orphans, 0);
  return complaints(result);
}

constexpr const char* kChanged =
    "chimera: rank 1 failed at [^:]+: the (activations|gradient) of stage [0-3] for micro-batch [0-7] of replica [01] "
    "in "
    "step 2 changed on the way from rank [0-3] to rank 1 .XXH3 [0-9a-f]{16}, sent with [0-9a-f]{16}.: memory, a "
    "processor or a network changes bits";

TEST(BitFlipTest, FlipInAMessageEndsTheRunAndNamesBothEnds) {
  for (const Words& transport : {Words{}, kThreads}) {
    const Scratch scratch;
    EXPECT_THAT(lines_of(scratch, "flip@message:1:17", kTwoCopies + transport + "--verify-messages", 1),
                ElementsAre(MatchesRegex(kChanged)));
  }
}

TEST(BitFlipTest, FlippedMessageIsResentIfRanksAreReplaceable) {
  const Scratch scratch;
  const auto lines = lines_of(scratch, "flip@message:1:17", kTwoCopies + "--verify-messages --recover twin", 0);
  EXPECT_THAT(lines, ElementsAre(MatchesRegex(std::string(kChanged) +
                                              " in step 2; recovery 1 of 100: continues with step 2 after [0-9.]+ s")));
  EXPECT_EQ(numbers_in(scratch), without_flips());
}

TEST(BitFlipTest, AFlipInANormIsFoundBetweenRanksThatShareALayer) {
  const Scratch scratch;
  const Words shared = "--schedule 1f1b --stages 2 --micro-batches 4 --tensor-parallel 2";
  const Words saves = split("--checkpoint {} --save-every 2", scratch.path("run"));
  const auto lines = lines_of(scratch, "flip@updated:2:2", shared + kThreads + saves, 1);
  EXPECT_THAT(lines,
              ElementsAre(HasSubstr("copies of the norms and biases of stage 1 on ranks 2, 3 differ after step 2")));
}

TEST(BitFlipTest, FlipInAReplicaIsRepairedFromTheMajority) {
  const Scratch scratch;
  const auto lines = lines_of(scratch, "flip@updated:2:2,flip@moments:0:3", kFourCopies + kThreads + kRepair, 0);
  const auto repaired = [](int rank, int step, int right) {
    return StartsWith("chimera: rank " + std::to_string(rank) +
                      ": its copy of stage 0 differed from the majority after step " + std::to_string(step) +
                      "; the copy of rank " + std::to_string(right) + " has replaced it; test");
  };
  EXPECT_THAT(lines, ElementsAre(repaired(2, 2, 0), repaired(0, 3, 1)));
  EXPECT_EQ(numbers_in(scratch), without_flips());
}

TEST(BitFlipTest, ReplicasAreThoseWithTheSamePartOfTheLayers) {
  const Scratch scratch;
  const auto lines = lines_of(scratch, "flip@updated:5:2", kFourCopies + "--tensor-parallel 2" + kThreads + kRepair, 0);
  EXPECT_THAT(lines, ElementsAre(StartsWith("chimera: rank 5: its copy of stage 0 differed from the majority after "
                                            "step 2; the copy of rank 1 has replaced it; test")));
}

TEST(BitFlipTest, RunRestartsFromItsCheckpointWithoutAMajority) {
  const Scratch scratch;
  const Words saves = split("--checkpoint {} --save-every 1 --max-restarts 1", scratch.path("run"));
  EXPECT_THAT(lines_of(scratch, "flip@moments:2:3", kTwoCopies + kRepair + saves, 0),
              ElementsAre(StartsWith("chimera: rank 2 failed at step 3: the copies of stage 1 on ranks 1, 2 differ "
                                     "after step 3, and no majority shows the right copy"),
                          StartsWith("chimera: restart 1 of 1: ")));
  EXPECT_EQ(numbers_in(scratch), without_flips());
}

TEST(BitFlipTest, FlipInAnIdleWeightIsFoundAndTheRankReplaced) {
  const Scratch scratch;
  EXPECT_THAT(
      lines_of(scratch, "flip@step:2:3", kTwoCopies + kRepair + "--recover twin", 0),
      ElementsAre(MatchesRegex("chimera: rank 2 failed at [^:]*: weights or optimizer state of this rank changed since "
                               "the last update: .* in step 3; recovery 1 of 100: continues with step 3 .*")));
  EXPECT_EQ(numbers_in(scratch), without_flips());
}

/// Kills `rank` while rank 2 computes with a flipped weight.
Words flip_beside_a_kill(int rank) {
  return {"CHIMERA_FAULT=flip@step:2:3,kill@backward:" + std::to_string(rank) + ":17"};
}

TEST(BitFlipTest, FlipInAnIdleWeightIsNotCopiedToANewRank) {
  const Scratch scratch;
  const Words saves = split("--checkpoint {} --save-every 1 --max-restarts 1", scratch.path("run"));
  const ProgramResult result =
      succeeded(ProgramRun(flip_training(scratch, kTwoCopies + kRepair + "--recover twin" + saves),
                           {.environment = flip_beside_a_kill(1)})
                    .wait());
  EXPECT_THAT(result.messages, HasSubstr("restart 1 of 1")) << "no rank has these stages any more";
  EXPECT_EQ(numbers_in(scratch), without_flips());
}

TEST(BitFlipTest, FlipInAnIdleWeightIsFoundDuringALoss) {
  const Scratch scratch;
  succeeded(ProgramRun(flip_training(scratch, kTwoCopies + kRepair + "--recover twin"),
                       {.environment = flip_beside_a_kill(0)})
                .wait());
  EXPECT_EQ(numbers_in(scratch), without_flips());
}

TEST(BitFlipTest, RepairNeedsReplicas) {
  const auto refusal = [](const Words& flags) { return refusal_of_training(flags + kRepair); };
  EXPECT_THAT(refusal("--schedule 1f1b --stages 2"), HasSubstr("no stage has a second copy"));
  EXPECT_THAT(refusal("--stages 2 --shard-optimizer"), HasSubstr("keeps one copy of the optimizer state"));
  EXPECT_THAT(refusal("--schedule pipedream --stages 2 --data-parallel 3"),
              HasSubstr("schedule pipedream is asynchronous"));
}

}  // namespace
}  // namespace chimera::testing
