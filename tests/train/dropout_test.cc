// Schedules agree under dropout and recomputation: masks are keyed by sample, and a recomputed forward is identical.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "support/schedules.h"
#include "support/training.h"

namespace chimera {
namespace {

struct DropoutCase {
  std::string model;
  std::string schedule;
  PipelineShape shape;
};

void PrintTo(const DropoutCase& c, std::ostream* out) {
  *out << c.model << " " << testing::describe(c.schedule, c.shape);
}

std::string dropout_name_of(const ::testing::TestParamInfo<DropoutCase>& tested) {
  std::string name = tested.param.model + "_" + testing::describe(tested.param.schedule, tested.param.shape);
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
}

TrainOptions with_dropout(const DropoutCase& c) {
  TrainOptions options = testing::small_options(c.model, c.schedule, c.shape);
  options.model.dropout = 0.2;
  return options;
}

/// Two and four pipelines, several stages per worker, split backwards, half-size micro-batches.
const auto kCases = ::testing::Values(
    DropoutCase{"gpt2-tiny", "gpipe", {8, 3}}, DropoutCase{"gpt2-tiny", "1f1b", {4, 8}},
    DropoutCase{"bert-tiny", "1f1b", {2, 4}}, DropoutCase{"gpt2-tiny", "chimera", {2, 4}},
    DropoutCase{"gpt2-tiny", "chimera", {4, 4, 4}}, DropoutCase{"bert-tiny", "chimera", {4, 8}},
    DropoutCase{"gpt2-tiny", "chimera", {.stages = 4, .micro_batches = 8, .scale = ScaleMethod::Doubling}},
    DropoutCase{"gpt2-tiny", "chimera", {.stages = 4, .micro_batches = 4, .scale = ScaleMethod::Halving}},
    DropoutCase{"gpt2-tiny", "zb-v", {4, 8}}, DropoutCase{"bert-tiny", "zb-v", {2, 4}},
    DropoutCase{"gpt2-tiny", "dualpipe", {4, 8}}, DropoutCase{"gpt2-tiny", "dualpipev", {4, 8}},
    DropoutCase{"llama-tiny", "chimera", {4, 8}}, DropoutCase{"llama-tiny", "zb-v", {2, 4}});

class KeyedDropoutTest : public ::testing::TestWithParam<DropoutCase> {};
INSTANTIATE_TEST_SUITE_P(Schedules, KeyedDropoutTest, kCases, dropout_name_of);

TEST_P(KeyedDropoutTest, LossAndGradientsAreThoseOfTheUnpipelinedModel) {
  const TrainOptions options = with_dropout(GetParam());
  const Job job = prepare_job(options);
  TrainOptions unpipelined = options;
  unpipelined.data.micro_batch_size = job.run.samples_per_op();
  unpipelined.schedule.shape.micro_batches = job.run.schedule.micro_batches;
  const auto pipelined = testing::train(options, 2);
  const auto reference = testing::train_unpipelined(unpipelined, 2);
  for (std::size_t step = 0; step < 2; ++step)
    EXPECT_NEAR(pipelined.losses[step], reference.losses[step], 1e-12 * reference.losses[step]);
  for (const auto& [name, expected] : reference.gradients) {
    for (const at::Tensor& gradient : pipelined.gradients.at(name))
      EXPECT_LE(testing::relative_error(gradient, expected[0], reference.gradient_norms[1]), 1e-11) << name;
  }
}

class RecomputationTest : public ::testing::TestWithParam<DropoutCase> {};
INSTANTIATE_TEST_SUITE_P(Schedules, RecomputationTest, kCases, dropout_name_of);
INSTANTIATE_TEST_SUITE_P(Unpipelined, RecomputationTest, ::testing::Values(DropoutCase{"gpt2-tiny", "none", {1, 3}}),
                         dropout_name_of);

TEST_P(RecomputationTest, LossesGradientsAndParametersKeepEveryBit) {
  for (const double dropout : {0.0, 0.2}) {
    TrainOptions options = with_dropout(GetParam());
    options.model.dropout = dropout;
    options.numbers.dtype = DataType::Float32;
    const auto kept = testing::train(options, 2);
    for (const char* text : {"full", "attention", "cheap", "full:1"}) {
      options.memory.recompute = parse_stages(kRecomputeFlag, text);
      const auto recomputed = testing::train(options, 2);
      EXPECT_EQ(recomputed.losses, kept.losses) << text;
      EXPECT_EQ(recomputed.gradient_norms, kept.gradient_norms) << text;
      for (const auto& [name, expected] : kept.gradients) {
        for (std::size_t copy = 0; copy < expected.size(); ++copy) {
          EXPECT_TRUE(at::equal(recomputed.gradients.at(name)[copy], expected[copy])) << text << " " << name;
          EXPECT_TRUE(at::equal(recomputed.parameters.at(name)[copy], kept.parameters.at(name)[copy]))
              << text << " " << name;
        }
      }
    }
  }
}

TEST(TrainingDropoutTest, ValidationHasNone) {
  TrainOptions options = with_dropout({"gpt2-tiny", "1f1b", {2, 2}});
  options.data.validate_every = 1;
  options.updates.optimizer.kind = OptimizerKind::Sgd;
  options.updates.learning_rate.peak = 1e-300;  // keeps the weights unchanged
  options.updates.optimizer.weight_decay = 0;
  const auto with = testing::train(options, 1);
  options.model.dropout = 0;
  const auto without = testing::train(options, 1);
  EXPECT_NE(with.losses, without.losses);
  EXPECT_EQ(with.validation_losses, without.validation_losses);
}

}  // namespace
}  // namespace chimera
