// The front program loads LibTorch only for subcommands that need it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The loader's messages about every library that it looks for.
std::string libraries_of(const Words& arguments) {
  const ProgramResult result = ProgramRun(arguments, {.environment = {"LD_DEBUG=libs"}}).wait();
  EXPECT_THAT(result.messages, HasSubstr("libc.so")) << "the loader says nothing";
  return result.messages;
}

TEST(FrontTest, SchedulingNeedsNoLibTorch) {
  EXPECT_THAT(libraries_of({"schedules"}), Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries_of("simulate gpipe --stages 2 --micro-batches 2"), Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries_of({"--help"}), Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries_of({"trian"}), Not(HasSubstr("libtorch")));
}

/// OpenMP's settings, as it prints them when it is loaded.
std::string openmp_settings(std::vector<std::string> environment) {
  environment.emplace_back("OMP_DISPLAY_ENV=true");
  return ProgramRun("train --help", {.environment = std::move(environment)}).wait().messages;
}

TEST(FrontTest, WaitingThreadsSleepUnlessTheUserSaysOtherwise) {
  EXPECT_THAT(openmp_settings({}), HasSubstr("OMP_WAIT_POLICY = 'PASSIVE'"));
  EXPECT_THAT(openmp_settings({"OMP_WAIT_POLICY=active"}), HasSubstr("OMP_WAIT_POLICY = 'ACTIVE'"));
}

TEST(FrontTest, KnowsSubcommandsThatAreNotLoaded) {
  const std::string help = run_program({"--help"}).output;
  for (const char* name : {"train", "profile", "bench", "export", "evaluate", "generate"})
    EXPECT_THAT(help, HasSubstr(std::string("\n  ") + name + " "));
  EXPECT_THAT(run_program({"trian"}).messages, HasSubstr("train"));
}

std::string help_of(const std::string& subcommand) {
  return ProgramRun({subcommand, "--help-all"}, {.environment = {"COLUMNS=80"}}).wait().output;
}

TEST(FrontTest, TrainingFlagsHaveHeadings) {
  const std::string train = help_of("train");
  std::size_t last = 0;
  for (const char* heading : {"\nModel:\n", "\nData:\n", "\nSchedule and shape:\n", "\nParallelism:\n",
                              "\nOptimization:\n", "\nMemory:\n", "\nOutput:\n", "\nHelp:\n"}) {
    const std::size_t place = train.find(heading);
    EXPECT_NE(place, std::string::npos) << heading;
    EXPECT_GT(place, last) << heading;
    last = place;
  }
  EXPECT_THAT(train, HasSubstr("\nSchedule and shape:\n  --schedule NAME"));
}

TEST(FrontTest, HelpSaysWhichFlagsTakeAFolder) {
  const std::string help = help_of("train");
  EXPECT_THAT(help, HasSubstr("\n  --checkpoint DIR  "));
  EXPECT_THAT(help, HasSubstr("\n  --tensorboard DIR  "));
  EXPECT_THAT(help, HasSubstr("\n  --metrics FILE  "));
}

TEST(FrontTest, QuotedExamplesBreakBetweenWords) {
  EXPECT_THAT(help_of("bench"), HasSubstr("\n    --command 'mine=python3 mine.py exported'\n"));
}

}  // namespace
}  // namespace chimera::testing
