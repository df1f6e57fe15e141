// A run with a loss spike returns to its newest checkpoint and skips the mini-batches that caused the spike.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int kSpikeSteps = 45;
constexpr int kSkip = 4;

/// One repeated sentence, and once random bytes, which reach a mini-batch long after the warmup.
std::string text_with_noise() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the cat sat on the mat. ";
  for (int i = 0; i < 64; ++i) text[static_cast<std::size_t>(4000 + i)] = static_cast<char>(128 + (i * 37) % 100);
  return text;
}

/// Two ranks, four sequences per step.
Words spike_training(const Scratch& scratch, const Words& flags) {
  const std::string text = scratch.write("noisy.txt", text_with_noise());
  const std::string metrics = scratch.path("metrics.jsonl");
  const std::string run = scratch.path("run");
  const std::string steps = std::to_string(kSpikeSteps);
  return split(
             "train --data {} --model gpt2-tiny --stages 2 --micro-batches 2 --sequence 32 --micro-batch-size 2 "
             "--steps {} --learning-rate 0.003 --reduction canonical --metrics {} --checkpoint {}",
             text, steps, metrics, run) +
         flags;
}

const Words kSaves = split("--save-every 5");
const Words kSpike = split("--spike 4sigma --spike-skip {} --max-restarts 2", kSkip);

/// The step that follows these words in a line.
int step_behind(const std::string& words, const std::string& line) {
  std::smatch found;
  return std::regex_search(line, found, std::regex(words + " ([0-9]+)")) ? std::stoi(found[1]) : 0;
}

TEST(LossSpikeTest, RollsBackAndSkipsTheMiniBatchesBeforeTheSpike) {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_program(spike_training(scratch, kSaves + kSpike)));
  const auto lines = complaints(result);
  ASSERT_THAT(lines,
              ElementsAre(MatchesRegex("chimera: rank 0 failed at step [0-9]+: the loss, [0-9.]+, is [0-9.]+ "
                                       "deviations of [0-9.]+ above the expected [0-9.]+ .--spike 4.; steps [0-9]+ "
                                       "to [0-9]+ make no update from now on"),
                          MatchesRegex("chimera: restart 1 of 2: continues from step [0-9]+ .*")));
  const int spike = step_behind("failed at step", lines.front());
  const int saved = step_behind("continues from step", lines.back());
  ASSERT_GT(spike, 20);
  ASSERT_LT(saved, spike);
  const auto steps = read_metrics(scratch.path("metrics.jsonl"));
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kSpikeSteps));
  for (int step = 1; step <= kSpikeSteps; ++step) {
    const bool is_left_out = step > saved && step > spike - kSkip && step <= spike;
    EXPECT_EQ(steps[static_cast<std::size_t>(step - 1)].contains("skipped"), is_left_out) << step;
  }
}

// A save of the step before the spike has begun, and needs the sums of two further steps to end by itself.
TEST(LossSpikeTest, CompletesASaveThatHasBegun) {
  const auto lines_of = [](const std::string& every) {
    const Scratch scratch;
    return complaints(succeeded(run_program(spike_training(scratch, kSpike + split("--save-every {}", every)))));
  };
  const int spike = step_behind("failed at step", lines_of("5").at(0));
  const std::string before = std::to_string(spike - 1);
  EXPECT_THAT(lines_of(before).at(1), HasSubstr("continues from step " + before + " "));
}

TEST(LossSpikeTest, ResumedRunKnowsEarlierLosses) {
  const auto line_of = [](const std::string& fault) {
    const Scratch scratch;
    const Words arguments = spike_training(scratch, kSaves + kSpike + "--resume auto");
    ProgramResult result = ProgramRun(arguments, {.environment = {"CHIMERA_FAULT=" + fault}}).wait();
    if (!fault.empty()) {
      EXPECT_EQ(result.exit_code, 75) << result.messages;
      result = run_program(arguments);
    }
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    const auto lines = complaints(result);
    return lines.empty() ? "" : lines.front();
  };
  const std::string whole = line_of("");
  EXPECT_THAT(whole, HasSubstr("deviations"));
  EXPECT_EQ(line_of("terminate@step:0:18"), whole);
}

TEST(LossSpikeTest, NeedsACheckpoint) {
  EXPECT_THAT(refusal_of_training("--spike 5sigma"), HasSubstr("give --checkpoint and that too"));
  EXPECT_THAT(refusal_of_training("--spike 0"), HasSubstr("must be deviations above 0, such as 5sigma"));
  EXPECT_THAT(refusal_of_training({"--spike", "5 sigmas"}), HasSubstr("such as 5sigma"));
  EXPECT_THAT(refusal_of_training("--spike-skip 3"), HasSubstr("--spike-skip is for --spike"));
}

}  // namespace
}  // namespace chimera::testing
