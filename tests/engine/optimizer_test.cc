#include "engine/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

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

/// AdamW written out for one number (Loshchilov and Hutter, algorithm 2).
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

TEST(OptimizerTest, LearningRateWarmsUpThenFollowsACosineToATenth) {
  const LearningRate rate{.peak = 1, .warmup = 4};
  EXPECT_DOUBLE_EQ(rate.at(0, 14), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(3, 14), 1);
  EXPECT_DOUBLE_EQ(rate.at(4, 14), 1);
  EXPECT_DOUBLE_EQ(rate.at(9, 14), 0.55);
  EXPECT_NEAR(rate.at(13, 14), 0.1 + 0.45 * (1 + std::cos(0.9 * M_PI)), 1e-15);
}

}  // namespace
}  // namespace chimera
