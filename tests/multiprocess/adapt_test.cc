// Runs whose order follows slow ranks (--adapt all): their numbers equal those of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

Arguments adapted_training(const Scratch& scratch) {
  return small_training(scratch) + Arguments{"--model",     "gpt2-tiny",       "--schedule", "chimera-zb", "--stages",
                                             "2",           "--micro-batches", "8",          "--steps",    "90",
                                             "--reduction", "canonical",       "--recover",  "reroute"};
}

/// Metrics without the fields that only a changed run has.
std::vector<nlohmann::json> numbers_of_all_steps(const Scratch& scratch) {
  std::vector<nlohmann::json> numbers = numbers_in(scratch);
  for (nlohmann::json& line : numbers) {
    line.erase("factors");
    line.erase("workers");
  }
  return numbers;
}

TEST(TrainingAdaptTest, ARunWithSlowRanksEqualsTheUndisturbedRun) {
  const Scratch undisturbed;
  EXPECT_EQ(ProgramRun(adapted_training(undisturbed), {.ranks = 2}).wait().exit_code, 0);
  const std::vector<nlohmann::json> expected = numbers_of_all_steps(undisturbed);
  ASSERT_EQ(expected.size(), 90);
  for (const std::string faults : {"slow*5@step:1:3-40", "slow*5@step:1:3-90,kill@step:0:55"}) {
    SCOPED_TRACE(faults);
    const Scratch scratch;
    const ProgramResult result = ProgramRun(adapted_training(scratch) + Arguments{"--adapt", "all"},
                                            {.environment = {"CHIMERA_FAULT=" + faults}, .ranks = 2})
                                     .wait();
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    EXPECT_FALSE(result.left_files);
    EXPECT_EQ(numbers_of_all_steps(scratch), expected);
    EXPECT_THAT(result.messages, HasSubstr(": rank 1 takes ")) << result.output;
    EXPECT_THAT(result.messages, HasSubstr(" of its 8 micro-batches go to rank 0: "));
    EXPECT_THAT(result.output, HasSubstr("rank 1 "));
    EXPECT_THAT(result.output, HasSubstr(" times as slow in step "));
    EXPECT_TRUE(std::ranges::any_of(numbers_in(scratch), [](const auto& line) { return line.contains("factors"); }));
  }
}

TEST(TrainingAdaptTest, ARefusalNamesWhatIsMissing) {
  const Scratch scratch;
  const ProgramResult result =
      ProgramRun(small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--stages", "2", "--adapt", "all"}).wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.messages, HasSubstr("--adapt all: changes the order as --recover twin and reroute do"));
}

}  // namespace
}  // namespace chimera::testing
