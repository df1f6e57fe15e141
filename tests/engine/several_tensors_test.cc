// Layers of a user's model that exchange several tensors have the loss and gradients of a plain loop over the layers.
//
// Tolerance: float64 has 16 digits; another order of summation over micro-batches and replicas costs a few of the last
// ones.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/fit.h"
#include "support/message_of.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kWidth = 4;
constexpr std::int64_t kWords = 9;

/// Values between layers: hidden states, a skip connection in float32, a padding mask, tokens, a missing value, a
/// tensor without gradient, and lengths, which the layer in the middle drops.
enum Value : std::uint8_t { Hidden, Skip, Mask, Tokens, Missing, Constant, Lengths };

struct Embeds : nn::Module {
  Embeds() : table(register_module("table", nn::Embedding(kWords, kWidth))) {}

  TensorVector forward(const TensorVector& inputs) {
    const at::Tensor hidden = table(inputs[0]);
    const at::Tensor skip = hidden.slice(-1, 0, 2).to(at::kFloat);
    return {hidden, skip, inputs[0].ne(0), inputs[0], {}, hidden.detach(), inputs[1]};
  }

  nn::Embedding table;
};

struct Mixes : nn::Module {
  Mixes() : linear(register_module("linear", nn::Linear(kWidth, kWidth))) {}

  TensorVector forward(const TensorVector& values) {
    EXPECT_FALSE(values[Missing].defined());
    EXPECT_FALSE(values[Constant].requires_grad());
    TensorVector result = values;
    result[Hidden] = linear(values[Hidden]).tanh() * values[Mask].unsqueeze(-1) + values[Constant];
    return result;
  }

  nn::Linear linear;
};

TensorVector scaled_by_length(const TensorVector& values) {
  TensorVector result(values.begin(), values.end() - 1);
  result[Hidden] = values[Hidden] / values[Lengths].view({-1, 1, 1});
  return result;
}

struct Joins : nn::Module {
  Joins()
      : linear(register_module("linear", nn::Linear(kWidth + 2, kWidth))),
        table(register_module("table", nn::Embedding(kWords, kWidth))) {}

  at::Tensor forward(const TensorVector& values) {
    return linear(at::cat({values[Hidden], values[Skip].to(at::kDouble)}, -1)) + table(values[Tokens]);
  }

  nn::Linear linear;
  nn::Embedding table;
};

/// A factory of modules with equal values at every call.
template <class Module>
LayerFactory with_values(std::uint64_t seed) {
  return [seed]() -> Layer {
    auto module = std::make_shared<Module>();
    module->to(at::kDouble);
    const at::NoGradGuard no_graph;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (at::Tensor parameter : module->parameters())
      parameter.copy_(at::randn(parameter.sizes(), generator, at::kDouble));
    return module;
  };
}

LossSum squared_error(const at::Tensor& output, const at::Tensor& target) {
  return {(output - target).square().sum(), target.numel()};
}

/// On four stages, the function is a stage.
Model padded_model() {
  Model model;
  model.layers = {with_values<Embeds>(1), with_values<Mixes>(2), [] { return scaled_by_length; }, with_values<Mixes>(3),
                  with_values<Joins>(4)};
  model.loss = {.sum = squared_error};
  return model;
}

/// Tokens [b, 5], of which 0 is padding, and lengths [b] in int32.
Batch padded_texts(const SampleRange& range) {
  std::vector<at::Tensor> tokens;
  std::vector<at::Tensor> targets;
  for (std::int64_t sample = range.first; sample < range.first + range.count; ++sample) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(range.step * 1000 + sample);
    tokens.push_back(at::randint(kWords, {5}, generator, at::kLong));
    targets.push_back(at::randn({5, kWidth}, generator, at::kDouble));
  }
  const at::Tensor input = at::stack(tokens);
  const at::Tensor lengths = input.ne(0).sum(1).clamp_min(1).to(at::kInt);
  return {input, at::stack(targets), {lengths}};
}

FitOptions four_micro_batches(const std::string& schedule, std::int64_t stages) {
  FitOptions options;
  options.schedule = schedule;
  options.shape = {stages, 4};
  options.micro_batch_size = 2;
  options.optimizer.kind = OptimizerKind::Sgd;
  options.threads = 1;
  return options;
}

struct LossAndGradients {
  double loss = 0;
  Parameters gradients;
};

LossAndGradients of_plain_loop(const FitRun& run) {
  std::vector<Layer> layers;
  for (const LayerFactory& factory : run.model.layers) layers.push_back(factory());
  LossAndGradients result;
  for (std::int64_t m = 0; m < 4; ++m) {
    const Batch batch = run.data(run.samples(0, GroupId(0), MicroBatchId(m)));
    TensorVector values{batch.input, batch.more_inputs.front()};
    for (const Layer& layer : layers) values = layer(values);
    const LossSum loss = run.model.loss.sum(values.front(), batch.target);
    const at::Tensor part = loss.sum / (4 * loss.count);
    part.backward();
    result.loss += part.item<double>();
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].module()) continue;
    for (const auto& entry : layers[i].module()->named_parameters())
      result.gradients[fmt::format("{}.{}", i, entry.key())] = entry.value().grad();
  }
  return result;
}

LossAndGradients of_pipeline(const FitRun& run) {
  LossAndGradients result;
  std::mutex mutex;
  run_rank_threads(static_cast<int>(run.num_ranks()), run.rank_groups(), [&](RankId rank, Transport& transport) {
    RankFit trainer(run, rank, transport);
    const double loss = trainer.train_step(0, [](double /*norm*/) {}).loss;
    const std::unique_lock lock(mutex);
    result.loss = loss;
    for (const auto& [id, stage] : trainer.stages()) {
      for (const Parameter& parameter : stage->parameters())
        result.gradients[parameter.name] = parameter.value.grad().clone();
    }
  });
  return result;
}

TEST(SeveralTensorsTest, GradientsAreThoseOfAPlainLoop) {
  for (const std::int64_t stages : {2, 4}) {
    for (const char* schedule : {"1f1b", "chimera", "chimera-zb", "none"}) {
      SCOPED_TRACE(fmt::format("{} stages, {}", stages, schedule));
      FitOptions options = four_micro_batches(schedule, stages);
      if (stages == 2 && options.schedule != "none") options.recompute = parse_stages(kRecomputeFlag, "0");
      const FitRun run = prepare_fit(padded_model(), padded_texts, options);
      const LossAndGradients expected = of_plain_loop(run);
      const LossAndGradients found = of_pipeline(run);
      EXPECT_NEAR(found.loss, expected.loss, 1e-12);
      ASSERT_EQ(expected.gradients.size(), 8U);
      for (const auto& [name, gradient] : expected.gradients)
        EXPECT_TRUE(at::allclose(found.gradients.at(name), gradient, 0, 1e-12)) << name;
    }
  }
}

TEST(SeveralTensorsTest, ValidationHasTheLossOfTraining) {
  const FitRun run = prepare_fit(padded_model(), padded_texts, four_micro_batches("chimera", 4));
  run_rank_threads(4, run.rank_groups(), [&](RankId rank, Transport& transport) {
    RankFit trainer(run, rank, transport);
    const double validated = trainer.validation_loss(0);
    EXPECT_NEAR(trainer.train_step(0).loss, validated, 1e-12);
  });
}

std::string refusal_with(std::size_t index, const LayerFactory& layer) {
  Model model = padded_model();
  model.layers[index] = layer;
  const auto train = [&] { fit(prepare_fit(model, padded_texts, four_micro_batches("1f1b", 4))); };
  const std::string message = testing::message_of<Error>(train, "not refused");
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(SeveralTensorsTest, RefusalsNameTheLayer) {
  EXPECT_THAT(refusal_with(4, with_values<Mixes>(1)),
              HasSubstr("stage 3 (layer 4) gives 6 tensors to the loss, which takes one"));
  EXPECT_THAT(refusal_with(3, [] { return nn::Linear(kWidth, kWidth); }),
              AllOf(HasSubstr("layer 3 (torch::nn::LinearImpl), on an input [2, 5, 4] of Double, [2, 5, 2] of Float"),
                    HasSubstr(": takes one tensor, but gets 6")));
  const auto as_complex = [](const TensorVector& values) { return TensorVector{at::complex(values[0], values[0])}; };
  EXPECT_THAT(refusal_with(2, [=] { return as_complex; }),
              HasSubstr("stage 1 (layer 2) gives [2, 5, 4] of ComplexDouble; messages carry dense real tensors"));
  EXPECT_THAT(refusal_with(2, [] { return [](const TensorVector&) { return TensorVector(2); }; }),
              HasSubstr("stage 1 (layer 2) gives no tensor"));
  const auto in_place = [](const TensorVector& values) {
    values[Hidden].mul_(2);
    return scaled_by_length(values);
  };
  EXPECT_THAT(refusal_with(2, [=] { return in_place; }), HasSubstr("stage 1 (layer 2) writes to its input"));
}

TEST(SeveralTensorsTest, AllMicroBatchesHaveOneLayout) {
  std::atomic<int> calls = 0;
  const auto longer = [&calls] {
    return [&calls](const TensorVector& values) {
      TensorVector result = scaled_by_length(values);
      if (++calls > 2) result.push_back(values[Mask]);  // After both first forwards
      return result;
    };
  };
  EXPECT_THAT(
      refusal_with(2, longer),
      HasSubstr("[2, 5, 4] of Double without a gradient, [2, 5] of Bool without a gradient, but at first it gave"));
}

}  // namespace
}  // namespace chimera
