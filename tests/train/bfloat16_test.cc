// bfloat16: layers compute in it and messages carry it; weights, gradients and all sums are float32.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "model/make_stage.h"
#include "support/logging_transport.h"
#include "support/message_of.h"
#include "support/training.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TrainOptions bfloat16(const std::string& schedule, const PipelineShape& shape) {
  TrainOptions options = testing::small_options("gpt2-tiny", schedule, shape);
  options.numbers.dtype = DataType::BFloat16;
  options.numbers.force_bfloat16 = true;
  return options;
}

/// A stage without a job.
std::unique_ptr<Stage> small_stage(const std::string& model, const StageLayers& layers, at::ScalarType dtype) {
  const ModelConfig config = with_overrides(find_model(model), {.layers = 2, .hidden = 16, .heads = 2});
  return make_stage(config, layers, dtype, initial_values_of(1));
}

TEST(Bfloat16Test, WeightsAndGradientsAreFloat32AndHiddenStatesAreNot) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    const auto stage = small_stage(model, {0, 1, true, false}, at::kBFloat16);
    for (const Parameter& parameter : stage->parameters()) {
      EXPECT_EQ(parameter.value.scalar_type(), at::kFloat) << parameter.name;
      EXPECT_EQ(parameter.value.grad().scalar_type(), at::kFloat) << parameter.name;
    }
    const at::Tensor tokens = at::arange(16, at::kLong).view({2, 8});
    const MicroBatch batch{.tokens = tokens, .token_types = at::zeros_like(tokens)};
    EXPECT_EQ(stage->forward({}, batch).scalar_type(), at::kBFloat16);
  }
}

TEST(Bfloat16Test, LayersSeeNewWeightsAfterTheCopiesAreRefreshed) {
  const auto stage = small_stage("gpt2-tiny", {1, 2, false, false}, at::kBFloat16);
  const at::Tensor input = at::ones({1, 4, 16}, at::kBFloat16);
  const at::NoGradGuard no_graph;
  const at::Tensor before = stage->forward(input, {});
  for (const Parameter& parameter : stage->parameters()) parameter.value.add_(1);
  EXPECT_TRUE(at::equal(stage->forward(input, {}), before));
  stage->update_copies();
  EXPECT_FALSE(at::equal(stage->forward(input, {}), before));
}

// 4096 + 1 is not a bfloat16 number.
TEST(Bfloat16Test, GradientsOfMicroBatchesAddUpInFloat32) {
  const auto stage = small_stage("gpt2-tiny", {1, 2, false, false}, at::kBFloat16);
  const auto gradients_on_top_of = [&](double value) {
    stage->gradients().fill_(value);
    const at::Tensor input = at::linspace(-1, 1, 64).view({1, 4, 16}).to(at::kBFloat16).requires_grad_();
    stage->forward(input, {}).sum().backward();
    return (stage->gradients() - value).clone();
  };
  const at::Tensor alone = gradients_on_top_of(0);
  EXPECT_TRUE(at::allclose(gradients_on_top_of(4096), alone, /*rtol=*/0, /*atol=*/4096 * 0x1p-23));
}

TEST(Bfloat16Test, MessagesAreHalfAsLargeAndGradientSumsAreNot) {
  const auto sent_bytes = [](DataType dtype, LoggingTransport& transport) {
    TrainOptions options = bfloat16("chimera", {2, 2});
    options.numbers.dtype = dtype;
    const Job job = prepare_job(options);
    const at::Tensor message =
        at::zeros({options.data.micro_batch_size, options.data.sequence, job.model.hidden}, scalar_type(dtype));
    for (int i = 0; i < 4; ++i) transport.prime(RankId(1), message);
    Trainer trainer(job, RankId(0), transport);
    static_cast<void>(trainer.train_step(0));
    std::size_t bytes = 0;
    for (const at::Tensor& tensor : transport.sent(RankId(1))) bytes += tensor.nbytes();
    return bytes;
  };
  LoggingTransport narrow;
  LoggingTransport wide;
  const std::size_t bytes = sent_bytes(DataType::BFloat16, narrow);
  EXPECT_GT(bytes, 0U);
  EXPECT_EQ(2 * bytes, sent_bytes(DataType::Float32, wide));
  EXPECT_THAT(narrow.lines(), ::testing::Contains(AllOf(HasSubstr("all-reduce stage"), HasSubstr("Float"))));
  EXPECT_THAT(narrow.lines(),
              ::testing::Not(::testing::Contains(AllOf(HasSubstr("all-reduce stage"), HasSubstr("BFloat16")))));
}

TEST(Bfloat16Test, CanonicalReductionGivesTheSameBitsFromEverySchedule) {
  constexpr std::int64_t kSteps = 3;
  const auto canonical = [](const std::string& schedule, const PipelineShape& shape) {
    TrainOptions options = bfloat16(schedule, shape);
    options.numbers.reduction = ReductionOrder::Canonical;
    options.model.dropout = 0.1;
    options.updates.clip = 0.5;
    options.updates.learning_rate.peak = 0.01;
    return options;
  };
  const auto expected = testing::train(canonical("none", {1, 8}), kSteps);
  const auto expect_equal = [&](const TrainOptions& options) {
    const auto trained = testing::train(options, kSteps);
    EXPECT_THAT(trained.losses, ElementsAreArray(expected.losses)) << options.schedule.name;
    EXPECT_THAT(trained.gradient_norms, ElementsAreArray(expected.gradient_norms)) << options.schedule.name;
    EXPECT_THAT(trained.parameters_hashes, ElementsAreArray(expected.parameters_hashes)) << options.schedule.name;
  };
  for (const std::string schedule : {"1f1b", "chimera", "zb-h1", "zb-v", "dualpipe"})
    expect_equal(canonical(schedule, {4, 8}));
  TrainOptions recomputed = canonical("zb-h1", {4, 8});
  recomputed.memory.recompute = {StageRule::Full};
  expect_equal(recomputed);
  TrainOptions groups = canonical("chimera", {4, 4});
  groups.parallel.data_parallel = 2;
  expect_equal(groups);
}

// A step's loss is the mean over few tokens and varies much, so the test compares means over ten steps.
TEST(Bfloat16Test, LossStaysWithinHalfAPercentOfFloat32) {
  constexpr std::size_t kTogether = 10;
  const std::int64_t steps = has_native_bfloat16() ? 200 : 20;
  for (const std::string model : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    TrainOptions options = bfloat16("chimera", {2, 2});
    options.model.name = model;
    options.model.overrides = {.layers = 2, .hidden = 32, .heads = 2};
    options.data.micro_batch_size = 4;
    options.updates.clip = 1;
    options.updates.steps = steps;
    const auto narrow = testing::train(options, steps);
    options.numbers.dtype = DataType::Float32;
    const auto wide = testing::train(options, steps);
    for (std::size_t i = 0; i < wide.losses.size(); i += kTogether) {
      const auto sum = [&](const std::vector<double>& losses) {
        const auto first = losses.begin() + static_cast<std::ptrdiff_t>(i);
        return std::accumulate(first, first + kTogether, 0.0);
      };
      EXPECT_NEAR(sum(narrow.losses) / sum(wide.losses), 1, 0.005) << model << ", from step " << i + 1;
    }
    EXPECT_NE(narrow.losses.back(), wide.losses.back()) << model << ": float32 all the same?";
  }
}

TEST(Bfloat16Test, EmulatingCpusAreRejectedUnlessForced) {
  EXPECT_NO_THROW((void)prepare_job(bfloat16("1f1b", {2, 2}))) << "forced";
  EXPECT_NO_THROW(require_fast_numbers(DataType::Float32, /*native=*/false));
  EXPECT_NO_THROW(require_fast_numbers(DataType::BFloat16, /*native=*/true));
  EXPECT_THAT(testing::message_of([&] { require_fast_numbers(DataType::BFloat16, /*native=*/false); }, "accepted"),
              AllOf(HasSubstr("AVX512-BF16"), HasSubstr("AMX"), HasSubstr("--force-bfloat16")));
}

}  // namespace
}  // namespace chimera
