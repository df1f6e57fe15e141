#include "model/make_stage.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "model/examples.h"
#include "model/layers.h"
#include "model/linear.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::unique_ptr<Stage>> cut(const ModelConfig& config, std::int64_t stages,
                                        RecomputeLevel level = RecomputeLevel::None) {
  std::vector<std::unique_ptr<Stage>> result;
  for (StageLayers layers : even_partition(config.layers, stages)) {
    layers.levels = BlockLevels::at(level, layers.blocks());
    result.push_back(rough_stage(config, layers));
  }
  return result;
}

double relative_difference(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).norm() / expected.norm()).item<double>();
}

at::Tensor all_gradients(const std::vector<std::unique_ptr<Stage>>& stages) {
  std::vector<at::Tensor> parts;
  for (const auto& stage : stages) parts.push_back(stage->gradients());
  return at::cat(parts);
}

class StageTest : public ::testing::TestWithParam<Family> {
 protected:
  StageTest() { at::set_num_threads(1); }  // tensors this small do not gain from threads
};
INSTANTIATE_TEST_SUITE_P(Families, StageTest, ::testing::Values(Family::Gpt2, Family::Bert, Family::Llama),
                         [](const auto& family) { return to_text(family.param); });

// The same operations run in the same order.
TEST_P(StageTest, CutIntoStagesGivesLossAndGradientsOfTheWhole) {
  const ModelConfig config = small_model(GetParam());
  MicroBatch batch = small_batch(GetParam());
  for (const double dropout : {0.0, 0.3}) {
    batch.dropout.probability = dropout;
    const auto single = cut(config, 1);
    const double loss = run_stages(single, batch);
    for (std::int64_t stages = 2; stages <= config.layers; ++stages) {
      const auto pipeline = cut(config, stages);
      EXPECT_NEAR(run_stages(pipeline, batch), loss, 1e-12 * loss);
      EXPECT_LT(relative_difference(all_gradients(pipeline), single[0]->gradients()), 1e-12) << stages << " stages";
    }
  }
}

/// Adds the gradients of `stages` for one micro-batch: by B, or by I and W.
void run_with_queue(const std::vector<std::unique_ptr<Stage>>& stages, const MicroBatch& batch, bool defers) {
  at::Tensor input;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::vector<WeightGradients::Pointer> queues;
  for (const auto& stage : stages) {
    inputs.push_back(input);
    queues.push_back(c10::make_intrusive<WeightGradients>());
    const WeightGradients::Scope scope(queues.back());
    outputs.push_back(stage->forward(input, batch));
    input = outputs.back().detach().requires_grad_();
  }
  at::Tensor gradient;
  for (std::size_t s = stages.size(); s-- > 0;) {
    if (defers) queues[s]->defer();
    torch::autograd::backward({outputs[s]}, {gradient});
    if (s > 0) gradient = inputs[s].grad();
  }
  for (const auto& queue : queues) queue->run();
}

TEST_P(StageTest, RecomputedBlocksGiveTheSameBits) {
  const ModelConfig config = small_model(GetParam());
  for (const double dropout : {0.0, 0.3}) {
    for (const bool split_documents : {false, true}) {
      if (split_documents && GetParam() == Family::Bert) continue;
      for (const bool defers : {false, true}) {
        MicroBatch batch = small_batch(GetParam());
        batch.dropout = {.probability = dropout, .seed = 3};
        if (split_documents) batch.documents = batch.tokens.ge(5).to(at::kLong).cumsum(1);
        const auto kept = cut(config, 2);
        run_with_queue(kept, batch, defers);
        EXPECT_GT(all_gradients(kept).abs().max().item<double>(), 0);
        for (const RecomputeLevel level : kRecomputeLevels) {
          const auto recomputed = cut(config, 2, level);
          run_with_queue(recomputed, batch, defers);
          EXPECT_LT(relative_difference(all_gradients(recomputed), all_gradients(kept)), 1e-12);
          EXPECT_TRUE(at::equal(all_gradients(recomputed), all_gradients(kept)))
              << to_text(level) << ", dropout " << dropout << ", documents " << split_documents << ", split backward "
              << defers;
        }
      }
    }
  }
}

TEST_P(StageTest, RecomputedBlocksNeedNoGraphWithoutGradients) {
  const ModelConfig config = small_model(GetParam());
  const MicroBatch batch = small_batch(GetParam());
  const auto stage = rough_stage(config, whole(config));
  const torch::autograd::AutoGradMode no_grad(false);
  const at::Tensor expected = stage->forward({}, batch);
  for (const RecomputeLevel level : kRecomputeLevels) {
    StageLayers layers = whole(config);
    layers.levels = BlockLevels::at(level, layers.blocks());
    EXPECT_TRUE(at::equal(rough_stage(config, layers)->forward({}, batch), expected));
  }
}

TEST_P(StageTest, DropoutActsInEveryBlock) {
  const ModelConfig config = small_model(GetParam());
  MicroBatch batch = small_batch(GetParam());
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const auto block = rough_stage(config, {.first_layer = layer, .end_layer = layer + 1});
    const at::Tensor hidden = at::ones({2, 6, config.hidden}, at::kDouble);
    const auto forward = [&](double dropout, std::int64_t step) {
      batch.dropout = {.probability = dropout, .step = step};
      return block->forward(hidden, batch).detach();
    };
    EXPECT_TRUE(at::equal(forward(0.3, 1), forward(0.3, 1)));
    EXPECT_FALSE(at::equal(forward(0.3, 1), forward(0.3, 2)));
    EXPECT_FALSE(at::equal(forward(0.3, 1), forward(0, 1)));
  }
}

TEST_P(StageTest, GradientsAreTheFiniteDifferencesOfTheLoss) {
  const ModelConfig config = with_overrides(small_model(GetParam()), {.layers = 2});
  MicroBatch batch = small_batch(GetParam());
  batch.dropout.probability = 0.2;
  const auto stages = cut(config, 1);
  run_stages(stages, batch);
  const torch::autograd::AutoGradMode no_grad(false);
  const auto loss = [&] { return stages[0]->forward({}, batch).item<double>(); };
  constexpr double kStep = 1e-5;
  for (const Parameter& parameter : stages[0]->parameters()) {
    const at::Tensor values = parameter.value.view(-1);
    const at::Tensor gradients = parameter.value.grad().view(-1);
    for (std::int64_t i = 0; i < values.numel(); i += 5) {
      const double value = values[i].item<double>();
      values[i] = value + kStep;
      const double above = loss();
      values[i] = value - kStep;
      const double below = loss();
      values[i] = value;
      EXPECT_NEAR(gradients[i].item<double>(), (above - below) / (2 * kStep), 1e-7) << parameter.name << " " << i;
    }
  }
}

// Weights near zero give every token the same probability: ln V, and ln 2 for the order of sentences.
TEST_P(StageTest, InitialLossIsOfUniformGuessing) {
  const bool bert = GetParam() == Family::Bert;
  const ModelConfig config = with_overrides(find_model(to_text(GetParam()) + "-tiny"), {});
  const MicroBatch batch = small_batch(GetParam());
  const auto stage = make_stage(config, whole(config), at::kFloat, initial_values_of(1));
  const double guessing = std::log(static_cast<double>(config.vocabulary)) + (bert ? std::log(2.0) : 0.0);
  EXPECT_NEAR(stage->forward({}, batch).item<double>(), guessing, 0.1 * guessing);
}

TEST_P(StageTest, LossesOfMicroBatchesAddUpToThatOfTheBatch) {
  const ModelConfig config = small_model(GetParam());
  const MicroBatch batch = small_batch(GetParam());
  const auto once = cut(config, 1);
  const double loss = run_stages(once, batch);

  const auto twice = cut(config, 1);
  double sum = 0;
  for (const std::int64_t row : {0, 1}) {
    MicroBatch half = batch;
    for (at::Tensor MicroBatch::*field : {&MicroBatch::tokens, &MicroBatch::targets, &MicroBatch::token_types,
                                          &MicroBatch::attention_mask, &MicroBatch::next_sentence}) {
      if ((half.*field).defined()) half.*field = (half.*field).narrow(0, row, 1);
    }
    sum += run_stages(twice, half);
  }
  EXPECT_NEAR(sum, loss, 1e-12 * loss);
  EXPECT_LT(relative_difference(twice[0]->gradients(), once[0]->gradients()), 1e-12);
}

TEST_P(StageTest, GradientsAreViewsIntoOneFlatTensor) {
  const ModelConfig config = small_model(GetParam());
  const auto stages = cut(config, 1);
  Stage& stage = *stages[0];
  run_stages(stages, small_batch(GetParam()));
  const auto address = [](const at::Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()); };
  std::uintptr_t end = address(stage.gradients());
  double sum = 0;
  for (const Parameter& parameter : stage.parameters()) {
    EXPECT_TRUE(parameter.value.is_leaf() && parameter.value.requires_grad()) << parameter.name;
    EXPECT_TRUE(parameter.value.grad().is_alias_of(stage.gradients())) << parameter.name;
    EXPECT_GT(parameter.value.grad().abs().max().item<double>(), 0) << parameter.name;
    EXPECT_EQ(address(parameter.value.grad()) % 64, 0U) << parameter.name;
    EXPECT_GE(address(parameter.value.grad()), end) << parameter.name << " overlaps the one before";
    end = address(parameter.value.grad()) + parameter.value.grad().nbytes();
    sum += parameter.value.grad().abs().sum().item<double>();
  }
  EXPECT_EQ(end, address(stage.gradients()) + stage.gradients().nbytes());
  EXPECT_NEAR(stage.gradients().abs().sum().item<double>(), sum, 1e-12 * sum) << "zeros lie between";
  stage.zero_gradients();
  EXPECT_EQ(stage.parameters()[0].value.grad().abs().sum().item<double>(), 0);
}

TEST_P(StageTest, GradientsOfASecondBackwardAreAdded) {
  const auto stages = cut(small_model(GetParam()), 1);
  run_stages(stages, small_batch(GetParam()));
  const at::Tensor once = stages[0]->gradients().clone();
  run_stages(stages, small_batch(GetParam()));
  EXPECT_LT(relative_difference(stages[0]->gradients(), 2 * once), 1e-15);
}

TEST_P(StageTest, LeavesItsInputUntouched) {
  const ModelConfig config = small_model(GetParam());
  const MicroBatch batch = small_batch(GetParam());
  const auto stage = rough_stage(config, {1, config.layers, false, true});
  const at::Tensor input = at::ones({2, 6, 8}, at::kDouble);
  (void)stage->forward(input, batch);
  EXPECT_TRUE(at::equal(input, at::ones({2, 6, 8}, at::kDouble)));
}

TEST_P(StageTest, RunsInFloat32AndBfloat16) {
  const ModelConfig config = small_model(GetParam());
  const MicroBatch batch = small_batch(GetParam());
  const double expected =
      make_stage(config, whole(config), at::kDouble, initial_values_of(3))->forward({}, batch).item<double>();
  const double single =
      make_stage(config, whole(config), at::kFloat, initial_values_of(3))->forward({}, batch).item<double>();
  EXPECT_NEAR(single, expected, 1e-5);
  const auto narrow = make_stage(config, whole(config), at::kBFloat16, initial_values_of(3));
  EXPECT_NEAR(narrow->forward({}, batch).item<double>(), expected, 2e-2);
}

// One tensor, on one stage or two; each use adds to a gradient of its own.
TEST_P(StageTest, TiedStagesShareAMatrixThatTheyDoNotOwn) {
  const ModelConfig config = with_overrides(small_model(GetParam()), {.tied = true});
  const MicroBatch batch = small_batch(GetParam());
  std::vector<at::Tensor> sums;
  for (const std::int64_t count : {1, 3}) {
    const auto tied = make_tied_weight(config, {.embedding = true, .head = true}, at::kDouble, initial_values_of(1));
    std::vector<std::unique_ptr<Stage>> stages;
    for (const StageLayers& layers : even_partition(config.layers, count)) {
      stages.push_back(make_stage(config, layers, at::kDouble, initial_values_of(1), tied->leaves()));
      for (const Parameter& parameter : stages.back()->parameters())
        EXPECT_NE(parameter.name, tied->parameters()[0].name);
    }
    run_stages(stages, batch);
    ASSERT_EQ(tied->accumulators().size(), 2U);
    const at::Tensor expected = tied->accumulators()[0] + tied->accumulators()[1];
    for (const at::Tensor& sum : tied->accumulators()) EXPECT_GT(sum.abs().max().item<double>(), 0);
    tied->add_accumulators();
    EXPECT_TRUE(at::equal(tied->gradients(), expected));
    sums.push_back(expected);
    tied->zero_gradients();
    for (const at::Tensor& sum : tied->accumulators()) EXPECT_EQ(sum.abs().max().item<double>(), 0);
  }
  EXPECT_TRUE(at::equal(sums[0], sums[1]));
}

TEST_P(StageTest, AnUpdateOfTheTiedMatrixReachesBothItsUses) {
  const ModelConfig config = with_overrides(small_model(GetParam()), {.tied = true});
  const auto tied = make_tied_weight(config, {.embedding = true, .head = true}, at::kDouble, initial_values_of(1));
  {
    const torch::autograd::AutoGradMode no_grad(false);
    at::Tensor value = tied->parameters()[0].value;
    value.add_(1);
  }
  EXPECT_TRUE(at::equal(tied->leaves().embedding, tied->parameters()[0].value));
  EXPECT_TRUE(at::equal(tied->leaves().head, tied->parameters()[0].value));
}

TEST_P(StageTest, AWorkerWithOneUseOfTheTiedMatrixAccumulatesOnce) {
  const ModelConfig config = with_overrides(small_model(GetParam()), {.tied = true});
  const auto first = make_tied_weight(config, {.embedding = true}, at::kDouble, initial_values_of(1));
  const auto last = make_tied_weight(config, {.head = true}, at::kDouble, initial_values_of(1));
  EXPECT_TRUE(at::equal(first->parameters()[0].value, last->parameters()[0].value)) << "a function of seed and name";
  EXPECT_EQ(first->accumulators().size(), 1U);
  EXPECT_FALSE(first->leaves().head.defined());
  const StageLayers head{3, config.layers, false, true};
  EXPECT_NO_THROW((void)make_stage(config, head, at::kDouble, initial_values_of(1), last->leaves()));
  EXPECT_THAT([&] { (void)make_stage(config, head, at::kDouble, initial_values_of(1), first->leaves()); },
              ThrowsMessage<ConfigError>(HasSubstr("needs a TiedWeight")));
}

}  // namespace
}  // namespace chimera
