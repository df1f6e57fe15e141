#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

TEST(DemoCommandTest, PrintsTheCommandsThatItRuns) {
  const ProgramResult result = succeeded(run_program("demo schedule"));
  EXPECT_THAT(result.output, HasSubstr("$ chimera simulate chimera --stages 4 --micro-batches 4\n"));
  const std::string figure = run_program("simulate chimera --stages 4 --micro-batches 4").output;
  EXPECT_THAT(result.output, HasSubstr(figure.substr(0, figure.find('\n')))) << "the output of the command";
  EXPECT_THAT(result.output, HasSubstr("$ chimera check ")) << "an invalid schedule does not end the demo";
  EXPECT_FALSE(result.left_files);
}

TEST(DemoCommandTest, ShowsModelsAndPlans) {
  EXPECT_THAT(run_program("demo model").output, HasSubstr("$ chimera model bert-48 --stages 4 "));
  EXPECT_THAT(run_program("demo plan").output, HasSubstr(" --rule paper "));
}

TEST(DemoCommandTest, KeepsItsFilesWhereAsked) {
  const Scratch scratch;
  EXPECT_EQ(run_program(split("demo schedule --folder {}", scratch.path("kept"))).exit_code, 0);
  EXPECT_THAT(read_file(scratch.path("kept/broken.csv")), HasSubstr("1B0,1F0"));
  expect_refusal(
      {split("demo schedule --folder {}", scratch.path("kept")), {"kept: exists already; give a new folder"}});
}

TEST(DemoCommandTest, NamesATemporaryFolderThatCannotBeMade) {
  for (const char* folder : {"TMPDIR=/proc", "TMPDIR=/nowhere"}) {
    const ProgramResult result = ProgramRun("demo schedule", {.environment = {folder}}).wait();
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.messages, HasSubstr("a folder for temporary files cannot be made ("));
    EXPECT_THAT(result.messages, HasSubstr("set TMPDIR to a folder that can be written"));
  }
}

TEST(DemoCommandTest, NamesTheNearestDemo) {
  expect_refusal({"demo shedule", {"shedule", "schedule"}});
  expect_refusal({"tour", {"`chimera tour` is now `chimera demo`"}});
}

TEST(DemoCommandTest, HelpListsEveryDemo) {
  const std::string help = run_program("demo --help").output;
  for (const char* name : {"schedule", "model", "plan", "train", "performance"})
    EXPECT_THAT(help, HasSubstr(std::string(name) + ": "));
}

}  // namespace
}  // namespace chimera::testing
