
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Many steps: on a busy machine both ranks stall, but equally on average.
TEST(StragglerTest, ASlowRankIsNamedAtTheEnd) {
  for (const char* transport : {"processes", "threads"}) {
    const Scratch scratch;
    const std::string run = scratch.path("run");
    const ProgramResult result =
        ProgramRun(small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--stages", "2", "--steps", "12",
                                                       "--checkpoint", run, "--transport", transport},
                   {.environment = {"CHIMERA_FAULT=slow@forward:1"}})
            .wait();
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    const ProgramResult diagnosis = ProgramRun({"diagnose", run}).wait();
    EXPECT_EQ(diagnosis.exit_code, 0) << diagnosis.messages;
    EXPECT_THAT(diagnosis.output, ContainsRegex("rank 1 is slow: the same ops take [0-9.]+ times as long as on other "
                                                "ranks, up to [0-9.]+ s a step"));
    EXPECT_THAT(diagnosis.output, Not(HasSubstr("rank 0 is slow")));
  }
}

}  // namespace
}  // namespace chimera::testing
