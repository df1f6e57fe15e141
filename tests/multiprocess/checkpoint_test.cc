// Runs that are killed and resume on other layouts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

/// 8 micro-batches per step over all groups, in canonical order.
Arguments canonical_training(const Scratch& scratch, const std::string& metrics) {
  return small_training(scratch, metrics) +
         Arguments{"--model", "gpt2-tiny", "--steps", "8", "--reduction", "canonical", "--dropout", "0.1"};
}

const Arguments kChimera = {"--schedule", "chimera", "--stages", "4", "--micro-batches", "8"};
const Arguments kTwoGroups = {"--schedule",      "1f1b", "--stages",    "2",      "--micro-batches", "4",
                              "--data-parallel", "2",    "--transport", "threads"};

std::vector<std::pair<std::int64_t, std::string>> hashes_in(const std::string& path) {
  std::vector<std::pair<std::int64_t, std::string>> hashes;
  for (const auto& line : read_metrics(path)) hashes.emplace_back(line.at("step"), line.at("parameters_hash"));
  return hashes;
}

class TrainingCheckpointTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainingCheckpointTest, KilledRunResumesWithTheSameNumbers) {
  const Scratch scratch;
  const Arguments saves = {"--checkpoint", scratch.path("run"), "--save-every", "2"};
  ProgramSetup fault;
  fault.environment = {std::string("CHIMERA_FAULT=") + GetParam()};
  const ProgramResult killed =
      ProgramRun(canonical_training(scratch, "metrics.jsonl") + kChimera + saves, fault).wait();
  EXPECT_NE(killed.exit_code, 0) << GetParam();
  const ProgramResult rest =
      run_program(canonical_training(scratch, "metrics.jsonl") + kTwoGroups + saves + Arguments{"--resume", "auto"});
  EXPECT_EQ(rest.exit_code, 0) << rest.messages;
  const ProgramResult clean = run_program(canonical_training(scratch, "clean.jsonl") + kTwoGroups);
  EXPECT_EQ(clean.exit_code, 0) << clean.messages;
  const auto expected = hashes_in(scratch.path("clean.jsonl"));
  ASSERT_EQ(expected.size(), 8U);
  EXPECT_EQ(hashes_in(scratch.path("metrics.jsonl")), expected);
}

INSTANTIATE_TEST_SUITE_P(, TrainingCheckpointTest,
                         ::testing::Values("kill@step:3:7", "kill@before-rename:0:2", "kill-launcher@updated:1:6"));

/// The manifest has the name of the tokenizer.
TEST(TrainingNamesTest, ATokenizerWhoseNameIsNotUtf8CostsNoWeights) {
  const Scratch scratch;
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 295; ++i) words += "word" + std::to_string(i) + "\n";
  const std::string tokenizer = scratch.write("bad\xFF.txt", words);
  const std::string run = scratch.path("run\xE9");
  const ProgramResult trained = run_program(
      small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--stages", "2", "--steps", "2", "--tokenizer",
                                          tokenizer, "--vocabulary", "300", "--checkpoint", run});
  EXPECT_EQ(trained.exit_code, 0) << trained.messages;
  for (const char* command : {"list", "show", "verify"}) {
    const ProgramResult listed = run_program({"checkpoint", command, run, "--format", "json"});
    EXPECT_EQ(listed.exit_code, 0) << listed.messages;
    EXPECT_THAT(listed.output, HasSubstr("\uFFFD/step-00000002"));
    EXPECT_FALSE(try_json(listed.output).is_discarded()) << listed.output;
  }
}

TEST(CheckpointCommandTest, ListsAndVerifiesCheckpoints) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  const std::string second = folder + "/step-00000002";
  const std::string fourth = folder + "/step-00000004";
  const ProgramResult trained =
      run_program(small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--schedule", "none", "--steps", "4",
                                                      "--checkpoint", folder, "--save-every", "2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.messages;
  const auto ask = [](const Arguments& words) { return run_program(Arguments{"checkpoint"} + words); };
  const auto json = [&](const Arguments& words) {
    return read_json(ask(words + Arguments{"--format", "json"}).output);
  };

  EXPECT_THAT(ask({"list", folder}).output, HasSubstr(fourth + "  step 4  "));
  const auto list = json({"list", folder}).at("checkpoints");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1].at("loss"), read_metrics(scratch.path("metrics.jsonl")).back().at("loss"));
  EXPECT_EQ(json({"show", second}).at("run").at("model").at("layers"), 4);
  EXPECT_THAT(ask({"show", folder}).output, HasSubstr("schedule=none"));

  EXPECT_EQ(ask({"diff", second, second}).exit_code, 0);
  const ProgramResult differing = ask({"diff", second, folder});
  EXPECT_EQ(differing.exit_code, 1);
  EXPECT_THAT(differing.output, HasSubstr("transformer.wte.weight: "));
  for (const auto& tensor : json({"diff", second, folder}).at("tensors")) {
    EXPECT_GT(tensor.at("largest"), 0) << tensor;
    EXPECT_LT(tensor.at("relative"), 2) << tensor;
  }

  EXPECT_EQ(ask({"convert", folder, "--output", scratch.path("model")}).exit_code, 0);
  EXPECT_EQ(run_program({"model", scratch.path("model")}).exit_code, 0);
  EXPECT_EQ(read_file(scratch.path("model/config.json")), read_file(fourth + "/config.json"));

  EXPECT_EQ(ask({"verify", folder}).exit_code, 0);
  const std::string weights = fourth + "/model.safetensors";
  std::string bytes = read_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(weights, std::ios::binary) << bytes;
  const ProgramResult verdict = ask({"verify", folder});
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_THAT(verdict.output, HasSubstr(second + ": good"));
  EXPECT_THAT(verdict.output, HasSubstr(weights + ": differs from its hash"));
  EXPECT_EQ(json({"verify", fourth}).at("checkpoints")[0].at("good"), false);
  EXPECT_EQ(ask({"list", scratch.path("nothing")}).exit_code, 2);
  EXPECT_EQ(ask({"diff", fourth, second}).exit_code, 2);
}

}  // namespace
}  // namespace chimera::testing
