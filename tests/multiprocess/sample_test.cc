// Text sampled during training, on one rank and on several.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/json.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const Words kSamples = {"--sample-every", "2", "--prompt", "the "};

/// Trains a small model for five steps, saves its folder and returns the lines of its metrics.
std::vector<json> train(const Scratch& scratch, const Words& more) {
  const ProgramResult result =
      run_program(small_training(scratch) + kSamples +
                  split("--steps 5 --learning-rate 1e-5 --export {}", scratch.path("model")) + more);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  const auto metrics = read_metrics(scratch.path("metrics.jsonl"));
  EXPECT_EQ(metrics.size(), 5U);
  EXPECT_THAT(result.messages, HasSubstr("\n  sample: "));
  return metrics;
}

/// Text generated from the folder.
std::string said(const Scratch& scratch) {
  return read_json(output_of({"generate", "--from", scratch.path("model"), "--prompt", "the ", "--tokens", "64",
                              "--dtype", "float64", "--format", "json"}))["prompts"][0]["text"];
}

struct Run {
  std::string name;
  Words arguments;
};

class TrainingSampleTest : public ::testing::TestWithParam<Run> {};
INSTANTIATE_TEST_SUITE_P(
    Schedules, TrainingSampleTest,
    ::testing::Values(
        Run{"Unpipelined", "--schedule none --micro-batches 4"}, Run{"Chimera", "--stages 2 --micro-batches 4"},
        Run{"ChimeraOfFour", "--stages 4 --tied true --transport threads"},
        Run{"Groups", "--schedule 1f1b --stages 2 --micro-batches 2 --data-parallel 2"},
        Run{"Interleaved", "--schedule interleaved-1f1b --stages 2 --micro-batches 4"},
        Run{"Llama", "--model llama-tiny --schedule zb-v --stages 2 --micro-batches 4"},
        Run{"SplitLayers",
            "--model llama-tiny --schedule 1f1b --stages 2 --micro-batches 2 --key-value-heads 2 --tensor-parallel 2"},
        Run{"Asynchronous", "--schedule pipedream --stages 2 --micro-batches 4 --validate-every 3"}),
    [](const auto& run) { return run.param.name; });

TEST_P(TrainingSampleTest, SamplesEqualTheExportedModels) {
  const Scratch scratch;
  const Words model = "--model gpt2-tiny";
  const auto metrics = train(scratch, (GetParam().name == "Llama" ? Words{} : model) + GetParam().arguments);
  for (const json& step : metrics) EXPECT_EQ(step.contains("sample"), step["step"] != 1 && step["step"] != 3) << step;
  EXPECT_EQ(metrics.back()["sample"], said(scratch));
}

TEST(TrainingSampleRefusalTest, RefusesWhatDoesNotFit) {
  const Scratch scratch;
  const auto refuses = [&](const Words& more, const Words& words) {
    expect_refusal({small_training(scratch) + "--model gpt2-tiny" + more, words});
  };
  refuses("--prompt a", {"--prompt is for --sample-every"});
  refuses("--sample-every 2", {"--sample-every needs a text", "--prompt"});
  refuses("--sample-every -2 --prompt a", {"--sample-every must be 0 to"});
  refuses(split("--sample-every 2 --prompt {}", std::string(1025, 'a')),
          {"--prompt has 1025 tokens", "1024 positions"});
  refuses({"--sample-every", "2", "--prompt", "\xFF"}, {"--prompt: byte 0 is not valid UTF-8"});
  std::string tokens;  // 16 bits each
  for (int i = 0; i < 4000; ++i) tokens += {static_cast<char>(i % 100), '\0'};
  Words on_tokens = small_training(scratch) + "--model gpt2-tiny --sample-every 2 --prompt a";
  *(std::ranges::find(on_tokens, "--data") + 1) = scratch.write("raw.bin", tokens);
  expect_refusal({on_tokens, {"--prompt: the data are tokens", "--tokenizer"}});
  refuses("--sample-every 2 --prompt a --model bert-tiny", {"is a BERT"});
}

}  // namespace
}  // namespace chimera::testing
