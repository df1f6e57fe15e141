// What processes write about their run, and what the other subcommands make of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;

TEST(TrainingObservationTest, ProcessesWriteATraceTimesAndAPage) {
  const Scratch scratch;
  const std::string times = scratch.path("times.json");
  const Arguments files = {"--trace",    scratch.path("trace.json"), "--op-times", times,
                           "--timeline", scratch.path("page.html")};
  const ProgramResult result = run_program(small_training(scratch) +
                                           Arguments{"--model", "gpt2-tiny", "--stages", "4", "--steps", "10"} + files);
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_FALSE(result.left_files);

  const json events = json::parse(read_file(scratch.path("trace.json")))["traceEvents"];
  std::map<std::string, std::map<int, int>> ops;  // by name, by worker
  int all_reduces = 0;
  for (const json& event : events) {
    if (event["ph"] == "X" && event["pid"] == 1) ++ops[event["name"]][event["tid"].get<int>() - 1];
    if (event["ph"] == "X" && event["pid"] == 3) ++all_reduces;
  }
  EXPECT_EQ(ops["2F0"], (std::map<int, int>{{2, 8}})) << "micro-batch 0 goes down; the last 8 steps are kept";
  EXPECT_EQ(ops["2F3"], (std::map<int, int>{{1, 8}})) << "micro-batch 3 goes up";
  EXPECT_EQ(ops["optimizer step"].size(), 4U);
  EXPECT_EQ(all_reduces, 8 * 4 * 2) << "two stages a worker";

  const ProgramResult simulated = run_program(
      {"simulate", "chimera", "--stages", "4", "--micro-batches", "4", "--costs", times, "--format", "json"});
  ASSERT_EQ(simulated.exit_code, 0) << simulated.messages;
  EXPECT_GT(json::parse(simulated.output)["makespan"].get<double>(), 0);
  EXPECT_THAT(read_file(scratch.path("page.html")), ::testing::HasSubstr("step "));
}

TEST(TrainingObservationTest, RanksWriteWhatTheirTensorsTake) {
  for (const char* transport : {"processes", "threads"}) {
    const Scratch scratch;
    const std::string file = scratch.path("tensors.json");
    const ProgramResult result = run_program(
        small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--schedule", "1f1b", "--stages", "2", "--steps",
                                            "2", "--transport", transport, "--tensor-memory", file});
    ASSERT_EQ(result.exit_code, 0) << result.messages;
    const json bytes = json::parse(read_file(file))["peak_bytes"];
    ASSERT_EQ(bytes.size(), 2U);
    constexpr double kKept = 8 * 4;             // weights, gradients and AdamW's moments in float64
    constexpr double kParameters = 2 * 49'984;  // of two of gpt2-tiny's blocks
    for (const json& rank : bytes) {
      EXPECT_GT(rank.get<double>(), kKept * kParameters) << transport;
      EXPECT_LT(rank.get<double>(), 20 * kKept * kParameters) << transport;
    }
    EXPECT_GT(bytes[0], bytes[1]) << "its positions, and two micro-batches in flight: " << transport;
  }
}

TEST(TrainingObservationTest, AFailedRunLeavesTheFilesOfTheLast) {
  const Scratch scratch;
  const std::string trace = scratch.write("trace.json", "the last trace");
  const ProgramResult result = run_program(
      small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--stages", "2", "--steps", "20", "--optimizer",
                                          "sgd", "--learning-rate", "1e300", "--clip", "0", "--trace", trace});
  EXPECT_EQ(result.exit_code, 1) << result.messages;
  EXPECT_EQ(read_file(trace), "the last trace");
  EXPECT_FALSE(std::filesystem::exists(trace + ".unfinished"));
}

}  // namespace
}  // namespace chimera::testing
