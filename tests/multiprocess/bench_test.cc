// `chimera bench`: training runs compared, and runs written as commands for other programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// `bench` on a sample text: small, in float64, with a single round, which counts even on a busy machine.
Words small_bench(const Scratch& scratch) {
  Words words = small_training(scratch);
  words.front() = "bench";
  const auto metrics = std::find(words.begin(), words.end(), "--metrics");
  words.erase(metrics, metrics + 2);
  return words + "--model gpt2-tiny --stages 2";
}

const Words kOneRound = "--rounds 1 --skip 1 --retries 0 --steps 3 --format json";

TEST(TrainingBenchTest, ComparesSchedulesFlagsAndForeignCommands) {
  const Scratch scratch;
  const std::string line = R"({"step": 2, "loss": 5, "step_seconds": 1, "tokens_per_second": 10})";
  const ProgramResult result =
      run_program(small_bench(scratch) + kOneRound +
                  Words{"--schedules", "none,chimera", "--run", "--schedule 1f1b --recompute full", "--command",
                        "peer=echo '" + line + "' >$CHIMERA_METRICS"});
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  const json runs = read_json(result.output)["runs"];
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0]["name"], "none");
  EXPECT_EQ(runs[0]["ratio"], 1.0);
  for (const json& run : {runs[1], runs[2]}) {
    EXPECT_GT(run["tokens_per_second"][0], 0) << run;
    EXPECT_LT(run["loss_difference"], 1e-11) << "the same training: " << run;
  }
  EXPECT_EQ(runs[2]["name"], "--schedule 1f1b --recompute full");
  EXPECT_EQ(runs[3]["tokens_per_second"], json::array({10.0}));
  EXPECT_FALSE(result.left_files);
}

TEST(TrainingBenchTest, WritesARunForOtherPrograms) {
  const Scratch scratch;
  const std::string folder = scratch.path("exported");
  const ProgramResult result =
      run_program(small_bench(scratch) + split("--micro-batches 4 --steps 3 --export {}", folder));
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  const json job = read_json(read_file(folder + "/job.json"));
  EXPECT_EQ(job["micro_batches"], 4);
  EXPECT_EQ(job["model"]["hidden"], 64);
  EXPECT_EQ(job["learning_rates"].size(), 3U);
  const std::string batches = read_file(folder + "/batches.safetensors");
  EXPECT_THAT(batches.substr(8, 200), HasSubstr(R"("shape":[3,8,32])")) << "steps, sequences, tokens";
  EXPECT_THAT(read_file(folder + "/weights.safetensors").substr(0, 4000), HasSubstr("h.0.attn.c_attn.weight"));
  Words again = small_bench(scratch) + Words{"--export", folder};
  std::erase(again, "--overwrite");
  expect_refusal({again, {"--export " + folder + "/weights.safetensors: exists already"}});
  EXPECT_EQ(read_file(folder + "/batches.safetensors"), batches);
  expect_refusal({again + "--rounds 2", {"--rounds: --export runs nothing"}});
}

TEST(BenchRefusalTest, ReportsErrorsBeforeAnythingRuns) {
  const Scratch scratch;
  const Words bench = small_bench(scratch);
  expect_refusal({bench, {"nothing to run", "--schedules"}});
  expect_refusal({bench + "--schedules none,1f1p", {"1f1p", "1f1b"}});
  expect_refusal({bench + Words{"--run", "--schedule gpipe --speed 3"}, {"--speed", "chimera train --help"}});
  expect_refusal({bench + "--command true", {"--command true", "NAME=COMMAND"}});
  expect_refusal({bench + "--schedules none --rounds 0", {"--rounds must be 1 to 1000000, not 0"}});
  expect_refusal({bench + Words{"--export", scratch.path("text.txt") + "/in"}, {"cannot be written"}});
}

}  // namespace
}  // namespace chimera::testing
