// Every schedule on every transport trains as the unpipelined model does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-11;  // relative, in float64: sums in another order

/// One thread, as each rank has: on a busy machine, threads wait long for each other.
const Words kReference = "--schedule none --threads 1";

/// Trains and returns the metrics; a run that fails or leaves anything behind fails the test.
std::vector<json> train(const Words& flags) {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_program(small_training(scratch) + flags));
  expect_clean(result);
  return read_metrics(scratch.path("metrics.jsonl"));
}

/// The losses, gradient norms and validation losses of two runs agree.
void expect_same_training(const std::vector<json>& one, const std::vector<json>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    for (const char* field : {"loss", "grad_norm", "validation_loss"}) {
      ASSERT_EQ(one[i].contains(field), other[i].contains(field)) << field << " of step " << i + 1;
      if (!one[i].contains(field)) continue;
      const double value = one[i][field].get<double>();
      EXPECT_NEAR(value, other[i][field].get<double>(), kTolerance * value) << field << " of step " << i + 1;
    }
  }
}

TEST(TrainingTest, ProcessesThreadsAndTheUnpipelinedModelAgree) {
  const Words shape = "--model gpt2-tiny --layers 8 --micro-batches 8 --steps 6 --stages 8";
  const auto reference = train(shape + kReference);
  ASSERT_EQ(reference.size(), 6U);
  expect_same_training(reference, train(shape + "--transport processes"));
  expect_same_training(reference, train(shape + "--transport threads"));
}

TEST(TrainingTest, SlicesTrainAsTheUnpipelinedModelOnEveryTransport) {
  const Words shape =
      "--model llama-tiny --layers 4 --micro-batches 4 --steps 4 --validate-every 4 --dropout 0.1 --stages 4";
  const auto reference = train(shape + kReference);
  ASSERT_EQ(reference.size(), 4U);
  const Words sliced = shape + "--schedule 1f1b --slices";
  expect_same_training(reference, train(sliced + "4 --transport processes"));
  expect_same_training(reference, train(sliced + "2 --slice-lengths 20,12 --transport threads"));
}

TEST(TrainingTest, AsynchronousSchedulesLearnOnEveryTransport) {
  const Words common =
      "--model gpt2-tiny --stages 4 --micro-batches 4 --steps 25 --clip 0.5 --validate-every 10 --learning-rate 0.005 "
      "--schedule";
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    const auto processes = train(common + Words{name});
    ASSERT_EQ(processes.size(), 25U);
    EXPECT_LT(processes[24]["loss"].get<double>(), 0.9 * processes[0]["loss"].get<double>()) << name;
    EXPECT_LT(processes[24]["validation_loss"].get<double>(), processes[9]["validation_loss"].get<double>()) << name;
    expect_same_training(processes, train(common + Words{name, "--transport", "threads"}));
  }
  const auto groups = train(common + "pipedream --stages 2 --data-parallel 2");
  EXPECT_LT(groups[24]["loss"].get<double>(), 0.9 * groups[0]["loss"].get<double>());
}

TEST(TrainingTest, GroupsTrainOnSharesOfTheSamples) {
  const Words model = "--model gpt2-tiny --layers 4 --steps 4 --validate-every 4";
  const auto reference = train(model + kReference + "--micro-batches 8");
  ASSERT_EQ(reference.size(), 4U);
  const Words groups = "--stages 2 --micro-batches 4 --data-parallel 2 --schedule";
  expect_same_training(reference, train(model + groups + "chimera"));
  expect_same_training(reference, train(model + groups + "1f1b --replica-layout far"));
  expect_same_training(reference, train(model + kReference + groups + "none"));  // N W, in order
}

/// Loss, gradient norm and, if canonical, the parameters' hash of every step, with all digits.
std::string bits(const std::vector<json>& steps) {
  std::string text;
  for (const json& step : steps)
    text +=
        json_text(step["loss"]) + " " + json_text(step["grad_norm"]) + " " + step.value("parameters_hash", "") + "\n";
  return text;
}

TEST(TrainingTest, CanonicalReductionGivesTheSameBitsToAll) {
  const Words model =
      "--model gpt2-tiny --layers 4 --hidden 16 --heads 2 --steps 100 --dtype float32 --clip 0.5 --reduction canonical "
      "--dropout 0.1";
  const std::string expected = bits(train(model + kReference + "--micro-batches 8"));
  EXPECT_EQ(std::ranges::count(expected, '\n'), 100);
  const auto same = [&](const Words& flags) { EXPECT_EQ(bits(train(model + flags)), expected) << flags[1]; };
  same("--schedule chimera --stages 4 --micro-batches 8 --pipelines 4");
  same("--schedule chimera --stages 2 --micro-batches 4 --data-parallel 2 --recompute full --shard-optimizer");
  same("--schedule zb-h1 --stages 4 --micro-batches 8 --transport threads");
}

TEST(TrainingTest, ShardedOptimizerStateChangesNoBit) {
  for (const Words shape :
       {"--stages 4 --micro-batches 8 --pipelines 2", "--stages 2 --micro-batches 4 --data-parallel 2"}) {
    const Words flags = "--model gpt2-tiny --steps 6" + shape;
    EXPECT_EQ(bits(train(flags + "--shard-optimizer")), bits(train(flags)));
  }
}

TEST(TrainingTest, DropoutAndRecomputationAreTheSameOnEveryTransport) {
  const Words common = "--model gpt2-tiny --stages 4 --steps 6 --dropout 0.1";
  const auto reference = train(common + kReference);
  expect_same_training(reference, train(common + "--recompute full --transport processes"));
  expect_same_training(reference, train(common + "--recompute full --transport threads"));
  expect_same_training(reference, train(common + "--recompute attention --transport processes"));
}

/// Twenty steps of one schedule, with validation, against the unpipelined model. The first two arguments go to both.
class TrainingScheduleTest : public ::testing::TestWithParam<Words> {};

TEST_P(TrainingScheduleTest, TrainsAsTheUnpipelinedModel) {
  const Words common = split("--micro-batches 4 --steps 20 --validate-every 8 {} {}", GetParam()[0], GetParam()[1]);
  const auto reference = train(common + kReference);
  ASSERT_EQ(reference.size(), 20U);
  expect_same_training(reference, train(common + Words(GetParam().begin() + 2, GetParam().end())));
}

std::string name_of(const ::testing::TestParamInfo<Words>& flags) {
  std::string name;
  for (const std::string& word : flags.param) {
    if (!word.starts_with("--")) name += (name.empty() ? "" : "_") + word;
  }
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, TrainingScheduleTest,
                         ::testing::Values(Words("--model gpt2-tiny --schedule gpipe --stages 2"),
                                           Words("--model gpt2-tiny --schedule 1f1b --stages 4"),
                                           Words("--model gpt2-tiny --schedule chimera --stages 2"),
                                           Words("--model gpt2-tiny --schedule chimera --stages 4"),
                                           Words("--model gpt2-tiny --schedule chimera --stages 4 --pipelines 4"),
                                           Words("--model bert-tiny --schedule gpipe --stages 2"),
                                           Words("--model bert-tiny --schedule chimera --stages 4")),
                         name_of);

TEST(TrainingMetricsTest, HaveOneObjectAStepWithTheDocumentedFields) {
  const auto steps = train("--model gpt2-tiny --stages 2 --micro-batches 4 --steps 5 --warmup 2 --validate-every 2");
  ASSERT_EQ(steps.size(), 5U);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const json& step = steps[i];
    EXPECT_EQ(step["step"], i + 1);
    EXPECT_EQ(step["tokens"], 4 * 2 * 32) << "micro-batches of 2 sequences of 32 tokens";
    for (const char* field : {"loss", "grad_norm", "learning_rate", "time", "step_seconds", "tokens_per_second"})
      EXPECT_GT(step.at(field).get<double>(), 0) << field;
    EXPECT_GT(step["peak_memory_bytes"].get<double>(), 10e6);
    EXPECT_GE(step.at("eta_seconds").get<double>(), 0);
    const bool validates = i + 1 == 2 || i + 1 == 4 || i + 1 == 5;  // every second step, and the last
    EXPECT_EQ(step.contains("validation_loss"), validates) << "step " << i + 1;
    EXPECT_EQ(step.size(), validates ? 11U : 10U) << step;
  }
  EXPECT_DOUBLE_EQ(steps[0]["learning_rate"].get<double>(), 0.5e-3) << "half of the peak after one of two steps";
}

TEST(TrainingTest, TheLossFalls) {
  const auto steps = train("--model gpt2-tiny --stages 2 --micro-batches 2 --steps 30 --transport threads");
  ASSERT_EQ(steps.size(), 30U);
  EXPECT_NEAR(steps.front()["loss"].get<double>(), std::log(256), 0.1) << "it begins by guessing";
  EXPECT_LT(steps.back()["loss"].get<double>(), 4.5);
}

TEST(TrainingTest, TheSeedChangesTheRun) {
  const Words shape = "--model gpt2-tiny --micro-batches 1 --steps 2";
  const auto one = train(shape + kReference + "--seed 1");
  const auto other = train(shape + kReference + "--seed 2");
  const auto by_default = train(shape + kReference);
  ASSERT_EQ(one.size(), 2U);
  ASSERT_EQ(other.size(), 2U);
  ASSERT_EQ(by_default.size(), 2U);
  EXPECT_NE(one[0]["loss"], other[0]["loss"]);
  EXPECT_EQ(one[0]["loss"], by_default[0]["loss"]) << "seed 1 is the default";
}

TEST(TrainingTest, LastOfARepeatedFlagTakesPrecedence) {
  const auto steps = train("--model gpt2-tiny --steps 3 --steps 1" + kReference);
  EXPECT_EQ(steps.size(), 1U);
}

TEST(TrainingTest, ANewRunReplacesTheMetricsOfTheLast) {
  const Scratch scratch;
  scratch.write("metrics.jsonl", "not a metric\n");
  succeeded(run_program(small_training(scratch) + "--model gpt2-tiny --steps 1" + kReference));
  EXPECT_EQ(read_metrics(scratch.path("metrics.jsonl")).size(), 1U);
}

TEST(TrainingTest, ShowsThePictureTheProgressAndTheSummary) {
  const Scratch scratch;
  const ProgramResult result = run_program(small_training(scratch) + "--model gpt2-tiny --steps 3");
  EXPECT_THAT(result.output, ::testing::HasSubstr("worker 0 | 0F0  .  0F1 3F2 3B2 3F3 3B3 0B0  .  0B1"));
  EXPECT_THAT(result.output, ::testing::ContainsRegex("step time: measured [0-9.]+ s .*simulated [0-9.]+ s"));
  EXPECT_THAT(result.messages, ::testing::ContainsRegex("step 3/3  loss [0-9.]+  grad [0-9.]+"));
}

}  // namespace
}  // namespace chimera::testing
