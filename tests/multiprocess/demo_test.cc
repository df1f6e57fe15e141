// The demo that trains.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"

namespace chimera::testing {
namespace {

TEST(TrainingDemoTest, TrainsWithAndWithoutAPipelineToOneLoss) {
  const Scratch scratch;
  const ProgramResult result = run_program({"demo", "train", "--folder", scratch.path("kept")});
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  const std::size_t line = result.output.find("last loss");
  ASSERT_NE(line, std::string::npos);
  EXPECT_THAT(result.output.substr(line, result.output.find('\n', line) - line),
              ::testing::ContainsRegex("([0-9]\\.[0-9]{3})[0-9] +\\1"));
  EXPECT_THAT(read_file(scratch.path("kept/report.html")), ::testing::HasSubstr("gpt2-tiny with chimera"));
}

}  // namespace
}  // namespace chimera::testing
