// Runs that lose ranks and continue with new processes: their numbers equal those of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

const Words kChimera = "--schedule chimera --stages 4 --micro-batches 8";
const Words kFourPipelines = kChimera + "--pipelines 4";
const Words kShards = {"--shard-optimizer"};
const Words kTwoGroups = "--schedule 1f1b --stages 2 --micro-batches 4 --data-parallel 2";

/// 8 micro-batches per step in canonical order.
Words training(const Scratch& scratch, const Words& flags) {
  return small_training(scratch) + flags +
         "--model gpt2-tiny --steps 8 --reduction canonical --dropout 0.1 --validate-every 3";
}

/// Metrics of the undisturbed run, in one process.
const std::vector<nlohmann::json>& undisturbed() {
  static const std::vector<nlohmann::json> numbers = [] {
    const Scratch scratch;
    EXPECT_EQ(run_program(training(scratch, kTwoGroups + "--transport threads")).exit_code, 0);
    return numbers_in(scratch);
  }();
  return numbers;
}

ProgramResult run_with(const Words& arguments, const std::string& faults) {
  return ProgramRun(arguments, {.environment = {"CHIMERA_FAULT=" + faults}, .ranks = 4}).wait();
}

struct Losses {
  const char* faults;
  Words flags;
  std::size_t ranks;  // lost in one recovery or in several
};

class TrainingTwinTest : public ::testing::TestWithParam<Losses> {};

TEST_P(TrainingTwinTest, RunEqualsTheUndisturbedRunAndLosesNoStep) {
  const auto& [faults, flags, ranks] = GetParam();
  const Scratch scratch;
  const ProgramResult result =
      succeeded(run_with(training(scratch, flags + "--recover twin --hang-seconds 1"), faults));
  expect_clean(result);
  const std::vector<std::string> lines = complaints(result);
  EXPECT_EQ(occurrences(result.messages, "rank "), ranks) << result.messages;
  EXPECT_THAT(
      lines,
      Each(MatchesRegex(
          "chimera: rank [0-3] .* in step [0-9]; recovery [0-9] of 100: continues with (step [0-9]|the end of the run) "
          "after [0-9.]+ s")));
  EXPECT_EQ(numbers_in(scratch), undisturbed());
}

INSTANTIATE_TEST_SUITE_P(
    Of, TrainingTwinTest,
    ::testing::Values(Losses{"kill@backward:0:13,kill@forward:1:27,segfault@backward:2:45,throw@step:3:8", kChimera, 4},
                      Losses{"kill@sum:1:2,kill@vote:3:4,kill@optimizer:0:5,kill@updated:2:7", kChimera, 4},
                      Losses{"stop@backward:2:14,hang@forward:3:40", kChimera, 2},
                      Losses{"kill@backward:1:20,kill@leave:0:1", kChimera, 2},
                      Losses{"kill@backward:1:20,kill@resume:1:1:2", kChimera, 2},
                      Losses{"kill@step:1:3,kill@step:3:3", kFourPipelines, 2},
                      Losses{"kill@backward:1:20,kill@leave:0:1,kill@rendezvous:2:2,kill@restore:1:3:2", kFourPipelines,
                             4},
                      Losses{"kill@vote:0:4,kill@connected:1:2", kFourPipelines, 2},
                      Losses{"kill@backward:3:7,kill@updated:0:6", kTwoGroups, 2},
                      Losses{"kill@optimizer:0:3,kill@vote:3:5,kill@updated:1:7", kFourPipelines + kShards, 3},
                      Losses{"kill@backward:2:14,kill@leave:0:1,kill@restore:2:3:2", kFourPipelines + kShards, 3}),
    [](const auto& losses) { return std::to_string(losses.index); });

/// Loses ranks in runs with the flags `run`, and expects the numbers of a run in threads with the flags `whole`.
void expect_undisturbed(const Words& whole, const Words& run, const std::vector<std::string>& losses,
                        std::optional<std::size_t> recoveries = {}) {
  const Scratch undisturbed;
  succeeded(run_program(training(undisturbed, whole + "--transport threads")));
  for (const std::string& faults : losses) {
    SCOPED_TRACE(faults);
    const Scratch scratch;
    const ProgramResult result = succeeded(run_with(training(scratch, run + "--recover twin"), faults));
    expect_clean(result);
    if (recoveries) EXPECT_EQ(occurrences(result.messages, "recovery "), *recoveries) << result.messages;
    EXPECT_EQ(numbers_in(scratch), numbers_in(undisturbed));
  }
}

TEST(TrainingTwinSlicesTest, RunEqualsTheUndisturbedRun) {
  const Words slices = "--slices 2";
  expect_undisturbed(kTwoGroups + slices, kChimera + slices, {"kill@backward:1:20,kill@forward:2:55"}, 2);
}

// A lost rank gets the state of a rank with the same t. Ranks 0 and 1 share the layers of worker 0.
TEST(TrainingTwinSplitLayersTest, RunEqualsTheUndisturbedRun) {
  const Words shared = "--schedule chimera --stages 2 --micro-batches 8 --tensor-parallel 2";
  expect_undisturbed(shared, shared + "--hang-seconds 1",
                     {"kill@backward:1:20,kill@forward:2:55", "kill@vote:3:4,kill@updated:0:6",
                      "stop@backward:2:14,kill@optimizer:1:5"},
                     2);
}

// A host takes all ranks that share its layers. The copies are in the other group.
TEST(TrainingTwinSplitLayersTest, AllRanksOfAWorkerMayBeLost) {
  const Words shared = "--schedule 1f1b --stages 1 --micro-batches 4 --data-parallel 2 --tensor-parallel 2";
  expect_undisturbed(shared, shared, {"kill@step:2:3,kill@step:3:3"});
}

// With Muon, a loss may interrupt the all-gather of an update, which some ranks complete and others do not.
TEST(TrainingTwinMuonTest, RunEqualsTheUndisturbedRun) {
  const Words muon = "--optimizer muon";
  expect_undisturbed(kTwoGroups + muon, kChimera + muon, {"kill@optimizer:0:3,kill@backward:1:41,kill@updated:2:7"}, 3);
}

TEST(TrainingTwinLimitsTest, StageWithoutAReplicaRestartsFromTheCheckpoint) {
  const Scratch scratch;
  const Words flags = split("--recover twin --checkpoint {} --save-every 2 --max-restarts 1", scratch.path("run"));
  const ProgramResult result = succeeded(run_with(training(scratch, kChimera + flags), "kill@step:2:4,kill@leave:1:1"));
  EXPECT_THAT(complaints(result),
              ElementsAre(MatchesRegex("chimera: not recovered: no rank is left that holds stage [12]"),
                          HasSubstr("was killed by signal 9 (Killed)"), StartsWith("chimera: restart 1 of 1: ")));
  EXPECT_EQ(numbers_in(scratch), undisturbed());
}

TEST(TrainingTwinLimitsTest, DifferingReplicasEndTheRun) {
  const Scratch scratch;
  const ProgramResult result = run_with(training(scratch, kChimera + "--recover twin"), "flip@updated:2:5");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(complaints(result), ElementsAre(StartsWith("chimera: rank 2 failed at step 8: the copies of stage 1 on "
                                                         "ranks 1, 2 differ after step 8, and no majority")));
}

TEST(TrainingTwinCheckpointTest, SaveIsRepeatedAfterALoss) {
  const Scratch scratch;
  // the third save of rank 3 is well before the end, when lost ranks are no longer replaced
  succeeded(run_with(
      training(scratch, kChimera + split("--recover twin --checkpoint {} --save-every 1", scratch.path("run"))),
      "kill@save:1:1,kill@before-rename:0:1,kill@saved:3:3"));
  EXPECT_EQ(numbers_in(scratch), undisturbed());
  const ProgramResult verified = run_program({"checkpoint", "verify", scratch.path("run")});
  EXPECT_EQ(verified.exit_code, 0) << verified.output << verified.messages;
  const auto last = read_json(run_program(split("checkpoint show {} --format json", scratch.path("run"))).output);
  EXPECT_EQ(last.at("run").at("progress").at("step"), 8);
  EXPECT_EQ(last.at("run").at("progress").at("updates"), 8);
}

TEST(TrainingTwinCheckpointTest, ARankIsReplacedInTheSaveAfterTheLastStep) {
  const Scratch scratch;
  const ProgramResult result =
      run_with(training(scratch, kChimera + split("--recover twin --checkpoint {}", scratch.path("run"))),
               "kill@save:1:1,kill@before-manifest:0:1");
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_EQ(occurrences(result.messages, "recovery "), 2U) << result.messages;
  EXPECT_EQ(numbers_in(scratch), undisturbed());
  EXPECT_EQ(run_program({"checkpoint", "verify", scratch.path("run")}).exit_code, 0);
}

TEST(TrainingTwinCheckpointTest, ARankIsReplacedInTheExport) {
  for (const char* fault : {"kill@export:0", "kill@export:1"}) {
    const Scratch scratch;
    const ProgramResult result =
        run_with(training(scratch, kChimera + split("--recover twin --export {}", scratch.path("model"))), fault);
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    EXPECT_EQ(occurrences(result.messages, "recovery 1 of 100: continues with the end of the run after "), 1U);
    EXPECT_EQ(numbers_in(scratch), undisturbed());
    EXPECT_EQ(run_program({"model", scratch.path("model")}).exit_code, 0);
  }
}

// A replacement reads no checkpoint. The learning rate, the position in the data and what is kept are
// settled by the resume.
TEST(TrainingTwinCheckpointTest, AReplacementHasWhatTheResumeHasSettled) {
  const auto resumed = [](const std::string& faults, std::size_t recoveries) {
    const Scratch scratch;
    const Words run = kTwoGroups + split("--checkpoint {} --save-every 1 --recover twin", scratch.path("run"));
    const ProgramResult first =
        run_program(training(scratch, run + "--keep 5 --keep-every 2 --learning-rate 0.003") + "--steps 3");
    EXPECT_EQ(first.exit_code, 0) << first.messages;
    const ProgramResult rest =
        run_with(training(scratch, run) + "--micro-batches 2 --resume auto --resume-other-data", faults);
    EXPECT_EQ(rest.exit_code, 0) << rest.messages;
    EXPECT_EQ(occurrences(rest.messages, "recovery "), recoveries) << rest.messages;
    return numbers_in(scratch);
  };
  EXPECT_EQ(resumed("kill@forward:0:5,kill@forward:3:9", 2), resumed("kill@step:0:1:9", 0));
}

TEST(TrainingTwinRefusalTest, RunsWithoutReplicasAreRejected) {
  const auto refusal = [](const Words& flags) {
    return refusal_of_training(flags + "--model gpt2-tiny --recover twin");
  };
  EXPECT_THAT(refusal("--schedule 1f1b --stages 2"),
              HasSubstr("--recover twin: no other rank has a copy of the stages of rank 0"));
  EXPECT_THAT(refusal("--schedule none"), HasSubstr("--recover twin: needs a run of several processes"));
  EXPECT_THAT(refusal({"--shard-optimizer"}), HasSubstr("--shard-optimizer would save nothing"));
  EXPECT_THAT(refusal("--schedule pipedream --data-parallel 2"), HasSubstr("is asynchronous"));
  for (const char* optimizer : {"lamb", "muon"})
    EXPECT_THAT(refusal(split("--tensor-parallel 2 --optimizer {}", optimizer)),
                HasSubstr(std::string("--optimizer ") + optimizer + " exchanges over"));
  EXPECT_THAT(refusal("--tensor-parallel 2 --data-parallel 2 --shard-optimizer"),
              HasSubstr("--shard-optimizer is not supported with --tensor-parallel"));
}

}  // namespace
}  // namespace chimera::testing
