#include "model/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace chimera {
namespace {

struct LinearGradients {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
};

at::Tensor trained_in_place(at::Tensor tensor) { return tensor.set_requires_grad(true); }

/// Autograd's gradients of at::linear.
LinearGradients of_autograd(const at::Tensor& x, const Linear& layer, const at::Tensor& output_gradient) {
  const at::Tensor input = trained_in_place(x.clone());
  const at::Tensor weight = trained_in_place(layer.weight.detach().clone());
  const at::Tensor bias = trained_in_place(layer.bias.detach().clone());
  const at::Tensor output = at::linear(input, layer.layout == WeightLayout::OutIn ? weight : weight.t(), bias);
  torch::autograd::backward({output}, {output_gradient});
  return {input.grad(), weight.grad(), bias.grad()};
}

class LinearTest : public ::testing::TestWithParam<WeightLayout> {
 protected:
  LinearTest() : x_(at::randn({2, 3, 4}, at::kDouble)), output_gradient_(at::randn({2, 3, 5}, at::kDouble)) {}

  Linear fresh_layer() const {
    const at::Tensor weight = GetParam() == WeightLayout::OutIn ? weight_ : weight_.t().contiguous();
    return {trained_in_place(weight.clone()), trained_in_place(bias_.clone()), GetParam()};
  }

  at::Tensor x_;
  at::Tensor output_gradient_;
  at::Tensor weight_ = at::randn({5, 4}, at::kDouble);
  at::Tensor bias_ = at::randn({5}, at::kDouble);
};

TEST_P(LinearTest, GradientsEqualAutograds) {
  const Linear layer = fresh_layer();
  const at::Tensor input = trained_in_place(x_.clone());
  torch::autograd::backward({linear(input, layer)}, {output_gradient_});
  const LinearGradients expected = of_autograd(x_, layer, output_gradient_);
  EXPECT_TRUE(at::allclose(input.grad(), expected.input, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(layer.weight.grad(), expected.weight, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(layer.bias.grad(), expected.bias, 1e-13, 1e-13));
}

TEST_P(LinearTest, SplitBackwardGivesTheBitsOfTheWhole) {
  const Linear whole = fresh_layer();
  const at::Tensor whole_input = trained_in_place(x_.clone());
  torch::autograd::backward({linear(whole_input, whole)}, {output_gradient_});

  const Linear split = fresh_layer();
  const at::Tensor input = trained_in_place(x_.clone());
  const auto queue = c10::make_intrusive<WeightGradients>();
  at::Tensor output;
  {
    const WeightGradients::Scope scope(queue);
    output = linear(input, split);
  }
  queue->defer();
  torch::autograd::backward({output}, {output_gradient_});
  EXPECT_TRUE(at::equal(input.grad(), whole_input.grad()));
  EXPECT_EQ(queue->num_deferred(), 1U);
  EXPECT_FALSE(split.weight.grad().defined());
  queue->run();
  EXPECT_EQ(queue->num_deferred(), 0U);
  EXPECT_TRUE(at::equal(split.weight.grad(), whole.weight.grad()));
  EXPECT_TRUE(at::equal(split.bias.grad(), whole.bias.grad()));
}

TEST_P(LinearTest, AddsToExistingGradients) {
  const Linear layer = fresh_layer();
  for (int time = 0; time < 2; ++time) torch::autograd::backward({linear(x_, layer)}, {output_gradient_});
  const LinearGradients once = of_autograd(x_, layer, output_gradient_);
  EXPECT_TRUE(at::allclose(layer.weight.grad(), 2 * once.weight, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(layer.bias.grad(), 2 * once.bias, 1e-13, 1e-13));
}

INSTANTIATE_TEST_SUITE_P(Layouts, LinearTest, ::testing::Values(WeightLayout::InOut, WeightLayout::OutIn));

}  // namespace
}  // namespace chimera
