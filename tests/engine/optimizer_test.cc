#include "engine/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace chimera {
namespace {

class TwoParameters final : public ParameterGroup {
 public:
  explicit TwoParameters(at::ScalarType dtype = at::kDouble)
      : ParameterGroup({{"matrix", at::full({2, 2}, 0.5, dtype)}, {"bias", at::full({2}, -0.25, dtype)}}) {}
};

double value(const ParameterGroup& group, std::size_t parameter) {
  return group.parameters()[parameter].value.detach().flatten()[0].item<double>();
}

/// AdamW for a single number (Loshchilov and Hutter, algorithm 2).
struct ScalarAdamW {
  double weight;
  double decay;
  double mean = 0;
  double square = 0;
  int steps = 0;
  void step(double gradient, double rate) {
    ++steps;
    mean = 0.9 * mean + 0.1 * gradient;
    square = 0.999 * square + 0.001 * gradient * gradient;
    weight -= rate * decay * weight;
    weight -= rate * (mean / (1 - std::pow(0.9, steps))) / (std::sqrt(square / (1 - std::pow(0.999, steps))) + 1e-8);
  }
};

void expect_adamw(at::ScalarType dtype, double tolerance) {
  TwoParameters parameters(dtype);
  const auto optimizer = make_optimizer({.weight_decay = 0.1}, {&parameters});
  ScalarAdamW matrix{0.5, 0.1};
  ScalarAdamW bias{-0.25, 0};
  for (int step = 0; step < 200; ++step) {
    const double gradient = std::sin(0.1 * step) + 0.2;
    parameters.gradients().fill_(gradient);
    const double factor = step % 2 == 0 ? 1 : 0.3;
    optimizer->step(0.01, factor);
    matrix.step(gradient * factor, 0.01);
    bias.step(gradient * factor, 0.01);
    ASSERT_NEAR(value(parameters, 0), matrix.weight, tolerance) << "step " << step;
    ASSERT_NEAR(value(parameters, 1), bias.weight, tolerance) << "step " << step;
  }
}

TEST(OptimizerTest, AdamWIsTheFormulaAndDecaysMatricesOnly) {
  expect_adamw(at::kDouble, 1e-12);
  expect_adamw(at::kFloat, 1e-5);
}

/// A matrix, a vector and an embedding table, with numbers of all magnitudes.
std::vector<Parameter> some_parameters(at::ScalarType dtype) {
  at::manual_seed(1);
  const auto options = at::TensorOptions(dtype);
  return {
      {"matrix", at::randn({5, 7}, options)}, {"bias", at::randn({7}, options)}, {"wte", at::randn({9, 3}, options)}};
}

class SomeParameters final : public ParameterGroup {
 public:
  explicit SomeParameters(at::ScalarType dtype = at::kDouble) : ParameterGroup(some_parameters(dtype)) {}
};

/// Gradients of a step, reproducible.
at::Tensor gradient_of(const at::Tensor& parameter, int step) {
  return at::sin(parameter.detach() * 3 + step) * (step % 3 == 0 ? 1e-3 : 10.0);
}

void expect_equal(const ParameterGroup& actual, const std::vector<at::Tensor>& expected, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Parameter& parameter = actual.parameters()[i];
    EXPECT_LE((parameter.value - expected[i]).abs().max().item<double>(), 1e-14) << what << ", " << parameter.name;
  }
}

/// Compares fifty clipped steps with torch's optimizer, with the given weight decay of each parameter.
template <class Optimizer, class Options>
void expect_torchs(const OptimizerOptions& options, Options torchs, const std::vector<double>& decay,
                   const std::string& what) {
  SomeParameters ours;
  std::vector<at::Tensor> theirs;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const Parameter& parameter : ours.parameters()) {
    theirs.push_back(parameter.value.detach().clone().set_requires_grad(true));
    torchs.weight_decay(decay[theirs.size() - 1]);
    groups.emplace_back(std::vector<at::Tensor>{theirs.back()}, std::make_unique<Options>(torchs));
  }
  const auto optimizer = make_optimizer(options, {&ours});
  Optimizer reference(groups, torchs);
  for (int step = 0; step < 50; ++step) {
    const double rate = 0.01 / (1 + step);
    const double factor = step % 2 == 0 ? 1 : 0.25;
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const Parameter& parameter = ours.parameters()[i];
      parameter.value.grad().copy_(gradient_of(parameter.value, step));
      theirs[i].mutable_grad() = gradient_of(theirs[i], step) * factor;
    }
    optimizer->step(rate, factor);
    for (auto& group : reference.param_groups()) group.options().set_lr(rate);
    reference.step();
  }
  expect_equal(ours, theirs, what);
}

TEST(OptimizerTest, AdamWIsTorchsWithEveryFlag) {
  using torch::optim::AdamW;
  using torch::optim::AdamWOptions;
  const auto torchs = AdamWOptions().betas({0.8, 0.95}).eps(1e-3);
  OptimizerOptions options{.weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3};
  expect_torchs<AdamW>(options, torchs, {0.1, 0, 0.1}, "matrices");
  options.decayed = DecayedWeights::NoEmbeddings;
  expect_torchs<AdamW>(options, torchs, {0.1, 0, 0}, "no embeddings");
  options.decayed = DecayedWeights::All;
  expect_torchs<AdamW>(options, torchs, {0.1, 0.1, 0.1}, "all");
  expect_torchs<AdamW>({}, AdamWOptions(), {0, 0, 0}, "defaults");
}

/// LAMB for a single tensor (You et al., ICLR'20, algorithm 2).
struct PlainLamb {
  std::vector<double> weights;
  double decay;
  std::vector<double> means = std::vector<double>(weights.size());
  std::vector<double> squares = std::vector<double>(weights.size());
  int steps = 0;

  void step(const std::vector<double>& gradient, double rate) {
    ++steps;
    std::vector<double> update;
    double weight_square = 0;
    double update_square = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      means[i] = 0.8 * means[i] + 0.2 * gradient[i];
      squares[i] = 0.95 * squares[i] + 0.05 * gradient[i] * gradient[i];
      update.push_back(means[i] / (1 - std::pow(0.8, steps)) /
                           (std::sqrt(squares[i] / (1 - std::pow(0.95, steps))) + 1e-6) +
                       decay * weights[i]);
      weight_square += weights[i] * weights[i];
      update_square += update[i] * update[i];
    }
    const double ratio = weight_square > 0 && update_square > 0 ? std::sqrt(weight_square / update_square) : 1;
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * ratio * update[i];
  }
};

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).flatten().contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

void expect_lamb(at::ScalarType dtype, double tolerance) {
  SomeParameters ours(dtype);
  ours.parameters()[1].value.data().zero_();  // like initial biases
  std::vector<PlainLamb> plain;
  for (const Parameter& parameter : ours.parameters())
    plain.push_back({numbers(parameter.value), parameter.name == "bias" ? 0 : 0.3});
  const auto optimizer = make_optimizer(
      {.kind = OptimizerKind::Lamb, .weight_decay = 0.3, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6}, {&ours});
  for (int step = 0; step < 50; ++step) {
    const double factor = step % 2 == 0 ? 1 : 0.25;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const at::Tensor gradient = gradient_of(ours.parameters()[i].value, step);
      plain[i].step(numbers(gradient * factor), 0.01);
      ours.parameters()[i].value.grad().copy_(gradient);
    }
    optimizer->step(0.01, factor);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const std::vector<double> actual = numbers(ours.parameters()[i].value);
      for (std::size_t j = 0; j < actual.size(); ++j)
        ASSERT_NEAR(actual[j], plain[i].weights[j], tolerance) << ours.parameters()[i].name << " in step " << step;
    }
  }
}

TEST(OptimizerTest, LambIsItsPlainFormula) {
  expect_lamb(at::kDouble, 1e-14);
  expect_lamb(at::kFloat, 1e-4);
}

TEST(OptimizerTest, LambWithoutGradientAndDecayDoesNotMove) {
  TwoParameters parameters;
  const auto optimizer = make_optimizer({.kind = OptimizerKind::Lamb}, {&parameters});
  parameters.gradients().zero_();
  optimizer->step(0.1, 1);
  EXPECT_EQ(value(parameters, 0), 0.5);
  std::size_t bytes = 0;
  for (const OptimizerTensor& tensor : optimizer->state()) bytes += tensor.value.nbytes();
  EXPECT_EQ(bytes, 2 * (4 + 2) * 8U);
}

TEST(OptimizerTest, SgdWithoutDecayIsTorchs) {
  expect_torchs<torch::optim::SGD>({.kind = OptimizerKind::Sgd}, torch::optim::SGDOptions(0.1), {0, 0, 0}, "sgd");
}

TEST(OptimizerTest, SgdStepsAgainstTheGradient) {
  TwoParameters parameters;
  const auto optimizer = make_optimizer({.kind = OptimizerKind::Sgd, .weight_decay = 0.1}, {&parameters});
  parameters.gradients().fill_(2);
  optimizer->step(0.01, 1);
  EXPECT_DOUBLE_EQ(value(parameters, 0), 0.5 * (1 - 0.001) - 0.02);
  EXPECT_DOUBLE_EQ(value(parameters, 1), -0.25 - 0.02);
}

TEST(OptimizerTest, ClippingBoundsTheGlobalNorm) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(4, 1), 0.25);
  EXPECT_EQ(clip_factor(4, 0), 1);
}

TEST(OptimizerTest, SaysWhatIsWrongWithItsOptions) {
  EXPECT_EQ(find_invalid_option(OptimizerOptions{}), "");
  EXPECT_EQ(find_invalid_option(OptimizerOptions{.beta1 = -0.1}), "beta1 must be at least 0 and below 1, not -0.1");
  EXPECT_EQ(find_invalid_option(OptimizerOptions{.beta2 = 1}), "beta2 must be at least 0 and below 1, not 1");
  EXPECT_EQ(find_invalid_option(OptimizerOptions{.epsilon = 0}), "epsilon must be above 0, not 0");
}

}  // namespace
}  // namespace chimera
