
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "support/paths.h"
#include "support/program.h"

namespace chimera::testing {
namespace {

TEST(TrainingDemoTest, TrainsWithAndWithoutAPipelineToOneLoss) {
  const Scratch scratch;
  const std::string result = output_of(split("demo train --folder {}", scratch.path("kept")));
  const std::size_t line = result.find("last loss");
  ASSERT_NE(line, std::string::npos);
  const std::string losses = result.substr(line, result.find('\n', line) - line);
  EXPECT_TRUE(std::regex_search(losses, std::regex(R"(([0-9]\.[0-9]{3})[0-9] +\1)"))) << losses;
  EXPECT_THAT(read_file(scratch.path("kept/report.html")), ::testing::HasSubstr("gpt2-tiny with chimera"));
}

TEST(TrainingSweepTest, ContinuesAtTheEndOfItsFile) {
  const Scratch scratch;
  const std::string table = scratch.path("sweep.csv");
  const auto sweep = [&](const std::string& counts) {
    return run_program(
        split("sweep --schedules 1f1b --stages 2 --micro-batches {} --train {} --output {} --model gpt2-tiny --steps 2 "
              "--sequence 32 --transport threads",
              counts, testing::source_path("/README.md"), table));
  };
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  succeeded(sweep("2"));
  const std::string before = read_file(table);
  EXPECT_EQ(lines(before), 2);
  const ProgramResult second = sweep("2,4");
  EXPECT_THAT(second.messages, ::testing::Not(::testing::HasSubstr("--micro-batches 2 ")));
  const std::string after = read_file(table);
  EXPECT_EQ(lines(after), 3);
  EXPECT_THAT(after, ::testing::StartsWith(before));
}

TEST(TrainingSweepTest, ATableOfAnotherSweepIsKept) {
  const Scratch scratch;
  const std::string table = scratch.path("sweep.csv");
  const std::string config = scratch.write("train.toml", "op-times = \"" + table + "\"\n");  // as another sweep would
  const ProgramResult result =
      run_program(split("sweep --schedules 1f1b --stages 2 --micro-batches 2 --train {} --output {} --config {} "
                        "--model gpt2-tiny --steps 2 --sequence 32 --transport threads",
                        testing::source_path("/README.md"), table, config));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, ::testing::HasSubstr("--output " + table + ": another sweep writes this file, too"));
  EXPECT_THAT(read_file(table), ::testing::StartsWith("{"));
}

}  // namespace
}  // namespace chimera::testing
