// Runs that lose ranks and continue without them: their numbers equal those of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kWorkers = "workers";  // A run without lost ranks does not have this field
const Words kFourStages = "--stages 4 --micro-batches 8";
const Words kFourPipelines = "--schedule chimera --pipelines 4" + kFourStages;
const Words kTwoGroupsOf1f1b = "--schedule 1f1b --stages 2 --micro-batches 4 --data-parallel 2";
const Words kTwoGroupsOfChimera = "--schedule chimera --stages 2 --micro-batches 4 --data-parallel 2";
const Words kReroute = "--recover reroute";
const Words kShards = {"--shard-optimizer"};

/// 8 micro-batches per step in canonical order.
Words rerouted_training(const Scratch& scratch, const Words& flags) {
  return small_training(scratch) + flags +
         "--model gpt2-tiny --steps 8 --reduction canonical --dropout 0.1 --validate-every 3";
}

/// Number of workers of each step.
std::vector<int> workers_of_steps(const Scratch& scratch) {
  std::vector<int> workers;
  for (const nlohmann::json& line : numbers_in(scratch)) workers.push_back(line.value("workers", 4));
  return workers;
}

/// Metrics of the undisturbed run, in one process.
std::vector<nlohmann::json> numbers_without_losses(const Words& flags) {
  const Scratch scratch;
  EXPECT_EQ(run_program(rerouted_training(scratch, kTwoGroupsOf1f1b + flags + "--transport threads")).exit_code, 0);
  return numbers_in(scratch);
}

ProgramResult run_with_faults(const Words& arguments, const std::string& faults) {
  return ProgramRun(arguments, {.environment = {"CHIMERA_FAULT=" + faults}, .ranks = 4}).wait();
}

struct Detour {
  const char* faults;
  Words flags;
  int workers = 0;  // Left at the end
};

class TrainingRerouteTest : public ::testing::TestWithParam<Detour> {};

TEST_P(TrainingRerouteTest, RunEqualsTheUndisturbedRunAndLosesNoStep) {
  static const std::vector<nlohmann::json> undisturbed = numbers_without_losses({});
  const auto& [faults, flags, workers] = GetParam();
  const Scratch scratch;
  const ProgramResult result =
      run_with_faults(rerouted_training(scratch, flags + kReroute + "--hang-seconds 1"), faults);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  expect_clean(result);
  EXPECT_EQ(numbers_in(scratch, kWorkers), undisturbed);
  const std::vector<int> left = workers_of_steps(scratch);
  EXPECT_EQ(left.front(), 4);
  EXPECT_EQ(left.back(), workers);
  EXPECT_TRUE(std::ranges::is_sorted(left, std::greater<>()));
}

INSTANTIATE_TEST_SUITE_P(
    Of, TrainingRerouteTest,
    ::testing::Values(Detour{"kill@step:2:4", "--schedule chimera" + kFourStages, 3},
                      // The rank that writes the metrics, and then the rank that writes them after it
                      Detour{"kill@backward:0:13,kill@vote:1:5", "--schedule chimera-zb" + kFourStages, 2},
                      Detour{"kill@updated:0:4", "--schedule chimera" + kFourStages, 3},
                      Detour{"stop@backward:3:14", "--schedule chimera" + kFourStages, 3},
                      Detour{"kill@backward:1:20,kill@leave:0:1", "--schedule chimera" + kFourStages, 2},
                      Detour{"kill@step:1:3,kill@backward:2:22", kTwoGroupsOf1f1b, 2},
                      Detour{"kill@step:1:3,kill@step:3:5,kill@step:2:7", kTwoGroupsOfChimera, 1},
                      Detour{"kill@vote:1:3,kill@connected:2:2", kFourPipelines, 2},
                      // Each shard has two holders: ranks of a stage in pairs
                      Detour{"kill@optimizer:2:4", kFourPipelines + kShards, 3},
                      Detour{"kill@vote:0:3,kill@updated:3:6", kTwoGroupsOfChimera + kShards, 2},
                      Detour{"kill@backward:1:20,kill@leave:2:1", kFourPipelines + kShards + "--tied false", 2}),
    [](const auto& detour) { return std::to_string(detour.index); });

TEST(TrainingRerouteLastLinesTest, EachLossIsReportedWithItsCost) {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_with_faults(
      rerouted_training(scratch, "--schedule chimera" + kFourStages + kReroute), "kill@step:2:4,kill@step:0:6"));
  EXPECT_THAT(
      complaints(result),
      ElementsAre(MatchesRegex("chimera: rank 2 was killed by signal 9 .Killed. in step 3; recovery 1 of 100: "
                               "continues with step 4 after [0-9.]+ s on 3 of 4 ranks"),
                  MatchesRegex("chimera: rank 0 was killed by signal 9 .Killed. in step [45]; recovery 2 of 100: "
                               "continues with step [56] after [0-9.]+ s on 2 of 4 ranks")));
  EXPECT_THAT(result.output, HasSubstr("rank 2 lost in step 4: "));
  EXPECT_THAT(result.output, HasSubstr(" s a step on 3 of 4 workers, "));
  EXPECT_THAT(result.output, HasSubstr("rank 0 lost in step "));
  EXPECT_THAT(result.output, HasSubstr(" s a step on 2 of 4 workers, "));
}

TEST(TrainingRerouteTiedTest, RunEqualsTheUndisturbedRun) {
  const Words tied = "--tied true --clip 0.5";
  const Scratch scratch;
  EXPECT_EQ(
      run_with_faults(rerouted_training(scratch, "--schedule chimera" + kFourStages + kReroute + tied), "kill@step:3:4")
          .exit_code,
      0);
  EXPECT_EQ(numbers_in(scratch, kWorkers), numbers_without_losses(tied));
}

/// Runs that lose both launched holders of stages 1 and 2, and perhaps others. The copies that balance the work after
/// the first loss have the stages, too.
class TrainingRerouteCopiesTest : public ::testing::TestWithParam<Detour> {};

TEST_P(TrainingRerouteCopiesTest, ACopyOnAnotherRankReplacesALostHolder) {
  static const std::vector<nlohmann::json> undisturbed = numbers_without_losses({});
  const auto& [faults, flags, workers] = GetParam();
  const Scratch scratch;
  const ProgramResult result =
      run_with_faults(rerouted_training(scratch, "--schedule chimera-zb" + kFourStages + kReroute + flags), faults);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_FALSE(result.left_files);
  EXPECT_EQ(numbers_in(scratch, kWorkers), undisturbed);
  EXPECT_EQ(workers_of_steps(scratch).back(), workers);
  EXPECT_THAT(result.output, HasSubstr("copied stage "));
}

INSTANTIATE_TEST_SUITE_P(Of, TrainingRerouteCopiesTest,
                         ::testing::Values(Detour{"kill@step:2:2,kill@step:1:5", {}, 2},
                                           Detour{"kill@step:2:2,kill@vote:0:4,kill@step:1:7", {}, 1},
                                           // A rank dies while the stages are copied
                                           Detour{"kill@step:2:2,kill@restore:0:2", {}, 2},
                                           Detour{"kill@step:2:2,kill@connected:0:3", {}, 2},
                                           Detour{"kill@step:2:2,kill@updated:1:5", {"--verify-messages"}, 2}),
                         [](const auto& detour) { return std::to_string(detour.index); });

TEST(TrainingRerouteLimitsTest, TheLastHolderOfAStageEndsTheRun) {
  const Scratch scratch;
  const Words flags = split("--schedule chimera --checkpoint {} --save-every 2 --memory 0.009", scratch.path("run")) +
                      kFourStages + kReroute;
  const ProgramResult result = run_with_faults(rerouted_training(scratch, flags), "kill@step:2:4,kill@step:1:6");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.orphans, 0);
  EXPECT_THAT(result.messages, HasSubstr("chimera: not recovered: no rank is left that holds stage "));
  EXPECT_THAT(result.messages, HasSubstr("newest checkpoint: "));
}

TEST(TrainingRerouteLimitsTest, TheLastHolderOfAShardEndsTheRun) {
  const Scratch scratch;
  const ProgramResult result =
      run_with_faults(rerouted_training(scratch, kFourPipelines + kShards + kReroute), "kill@step:2:4,kill@step:3:6");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("not recovered: no rank is left that holds a shard of the optimizer"));
}

void expect_checkpoints_load(const Words& flags) {
  const Scratch scratch;
  succeeded(run_with_faults(
      rerouted_training(scratch,
                        flags + kReroute + split("--checkpoint {} --save-every 1 --keep 8", scratch.path("run"))),
      "kill@step:0:3"));
  const std::vector<nlohmann::json> whole = numbers_in(scratch, kWorkers);
  const ProgramResult verified = run_program({"checkpoint", "verify", scratch.path("run")});
  EXPECT_EQ(verified.exit_code, 0) << verified.output << verified.messages;
  int saved = 7;  // Not every step is saved
  const auto folder = [&] { return scratch.path("run/step-0000000" + std::to_string(saved)); };
  while (saved > 3 && !std::filesystem::exists(folder())) --saved;
  const Scratch second;
  EXPECT_EQ(
      run_program(rerouted_training(second, kTwoGroupsOf1f1b + Words{"--resume", folder()} + "--transport threads"))
          .exit_code,
      0);
  const std::vector<nlohmann::json> rest = numbers_in(second);
  ASSERT_EQ(rest.size(), static_cast<std::size_t>(8 - saved));
  EXPECT_EQ(rest.back().at("parameters_hash"), whole.back().at("parameters_hash"));
}

TEST(TrainingRerouteCheckpointTest, ACheckpointOfTheRemainingRanksLoadsAnywhere) {
  expect_checkpoints_load("--schedule chimera" + kFourStages);
  expect_checkpoints_load(kFourPipelines + kShards);
}

TEST(TrainingRerouteTwinTest, ARunWhoseReplacementsDieContinuesWithoutThem) {
  const Scratch scratch;
  const ProgramResult result =
      run_with_faults(rerouted_training(scratch, "--schedule chimera --recover twin" + kFourStages),
                      "kill@backward:1:20,kill@start:1:1:2");
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.messages, HasSubstr("on 3 of 4 ranks"));
  EXPECT_EQ(numbers_in(scratch, kWorkers), numbers_without_losses({}));
}

const Words kLongRun = "--model gpt2-tiny --steps 100 --reduction canonical --log-every 100";

std::vector<nlohmann::json> numbers_of_long_run() {
  const Scratch scratch;
  succeeded(run_program(small_training(scratch) + ("--schedule chimera --transport threads" + kFourStages + kLongRun)));
  return numbers_in(scratch);
}

TEST(TrainingRerouteTwinTest, ALateReplacementReturns) {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_with_faults(
      small_training(scratch) + ("--schedule chimera --recover twin --spare-seconds 0" + kFourStages) + kLongRun,
      "kill@step:1:3,slow@step:0:3"));
  const auto lines = complaints(result);  // On a busy machine the rank returns at the second try
  ASSERT_GE(lines.size(), 2U) << result.messages;
  EXPECT_THAT(lines.front(), AllOf(StartsWith("chimera: rank 1 was killed"), HasSubstr("on 3 of 4 ranks")));
  EXPECT_THAT(lines.back(), AllOf(StartsWith("chimera: rank 1 returns in step "), Not(HasSubstr("on 3 of 4 ranks"))));
  EXPECT_EQ(numbers_in(scratch, kWorkers), numbers_of_long_run());
  const std::vector<int> workers = workers_of_steps(scratch);
  EXPECT_EQ(workers.front(), 4);
  EXPECT_EQ(workers.back(), 4);
}

// Rank 2 never returns. When rank 1 does, extra copies are the only ones of its stages.
TEST(TrainingRerouteTwinTest, ARankReturnsWhoseStagesAreExtraCopies) {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_with_faults(
      small_training(scratch) + ("--schedule chimera --recover twin --spare-seconds 0" + kFourStages) + kLongRun,
      "kill@step:2:2,stop@start:2:1:2,kill@step:1:6,slow@step:0:6"));
  EXPECT_EQ(result.orphans, 0);
  EXPECT_THAT(complaints(result).back(),
              AllOf(StartsWith("chimera: rank 1 returns in step "), EndsWith("on 3 of 4 ranks")));
  EXPECT_EQ(numbers_in(scratch, kWorkers), numbers_of_long_run());
  EXPECT_EQ(workers_of_steps(scratch).back(), 3);
}

TEST(TrainingRerouteRefusalTest, RunsThatCannotBeReroutedAreRejected) {
  const auto refusal = [](const Words& flags) { return refusal_of_training(flags + kReroute + "--model gpt2-tiny"); };
  EXPECT_THAT(refusal("--schedule 1f1b --stages 2"),
              HasSubstr("--recover reroute: no other rank has a copy of the stages of rank 0"));
  EXPECT_THAT(refusal("--schedule none"), HasSubstr("--recover reroute: needs a run of several processes"));
  EXPECT_THAT(refusal("--transport threads"), HasSubstr("--recover reroute: needs a run of several processes"));
  EXPECT_THAT(refusal({"--shard-optimizer"}), HasSubstr("--recover reroute: --shard-optimizer would save nothing"));
  EXPECT_THAT(refusal("--schedule pipedream --data-parallel 2"), HasSubstr("is asynchronous"));
  EXPECT_THAT(refusal("--tensor-parallel 2"), HasSubstr("--recover reroute is not supported yet; use --recover twin"));
  EXPECT_THAT(refusal("--spare-seconds 3"), HasSubstr("--recover twin"));
}

}  // namespace
}  // namespace chimera::testing
