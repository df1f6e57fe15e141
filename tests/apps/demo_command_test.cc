
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

TEST(DemoCommandTest, PrintsTheCommandsThatItRuns) {
  const ProgramResult result = run_program({"demo", "schedule"});
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.output, HasSubstr("$ chimera simulate chimera --stages 4 --micro-batches 4\n"));
  EXPECT_THAT(result.output, HasSubstr("makespan 16, bubble ratio 0.25"));
  EXPECT_THAT(result.output, HasSubstr("worker 1 cannot run 1B0"));
  EXPECT_FALSE(result.left_files);
}

TEST(DemoCommandTest, ShowsModelsAndPlans) {
  EXPECT_THAT(run_program({"demo", "model"}).output, HasSubstr("669790012 parameters"));
  EXPECT_THAT(run_program({"demo", "plan"}).output, HasSubstr("chosen by the paper's rule: chimera  W 4 x D 8"));
}

TEST(DemoCommandTest, KeepsItsFilesWhereAsked) {
  const Scratch scratch;
  EXPECT_EQ(run_program({"demo", "schedule", "--folder", scratch.path("kept")}).exit_code, 0);
  EXPECT_THAT(read_file(scratch.path("kept/broken.csv")), HasSubstr("1B0,1F0"));
  expect_refusal({{"demo", "schedule", "--folder", scratch.path("kept")}, {"kept: exists already; give a new folder"}});
}

TEST(DemoCommandTest, NamesATemporaryFolderThatCannotBeMade) {
  for (const char* folder : {"TMPDIR=/proc", "TMPDIR=/nowhere"}) {
    const ProgramResult result = ProgramRun({"demo", "schedule"}, {.environment = {folder}}).wait();
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.messages, HasSubstr("a folder for temporary files cannot be made ("));
    EXPECT_THAT(result.messages, HasSubstr("set TMPDIR to a folder that can be written"));
  }
}

TEST(DemoCommandTest, NamesTheNearestDemo) {
  expect_refusal({{"demo", "shedule"}, {"shedule", "schedule"}});
  for (const char* command : {"demo", "tour"}) {
    EXPECT_THAT(run_program({command, "--help"}).output, HasSubstr("\nDemos: schedule: pipelines, bubbles"));
  }
  expect_refusal({{"demo"}, {"NAME is missing; schedule: pipelines, bubbles"}});
}

}  // namespace
}  // namespace chimera::testing
