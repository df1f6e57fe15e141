// Whole and split backwards of any function give the bits of plain autograd.

#include "model/split_backward.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/nn.h>

#include <memory>
#include <string>
#include <vector>

#include "model/linear.h"

namespace chimera {
namespace {

namespace nn = torch::nn;
using StageFunction = std::function<at::Tensor(const at::Tensor&)>;

struct Example {
  std::string name;
  std::vector<at::Tensor> parameters;
  StageFunction function;
  at::Tensor input;  // of floating point: its gradient is compared too
};

Example of_module(std::string name, nn::Sequential module, at::Tensor input) {
  return {std::move(name), module->parameters(), [module](const at::Tensor& x) mutable { return module->forward(x); },
          std::move(input)};
}

std::vector<Example> examples() {
  at::manual_seed(7);
  std::vector<Example> all;
  all.push_back(of_module(
      "perceptron", nn::Sequential(nn::Linear(24, 40), nn::ReLU(), nn::Linear(40, 40), nn::GELU(), nn::Linear(40, 8)),
      at::randn({16, 24})));
  all.push_back(of_module(
      "convolutions",
      nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::GroupNorm(2, 8), nn::ReLU(),
                     nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(8, 4, 3)), nn::Flatten(), nn::Linear(36, 5)),
      at::randn({4, 3, 10, 10})));
  all.push_back(of_module("norms first",
                          nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({12})), nn::Linear(12, 12), nn::Tanh(),
                                         nn::LayerNorm(nn::LayerNormOptions({12}))),
                          at::randn({8, 5, 12})));
  all.push_back(of_module("ids first", nn::Sequential(nn::Embedding(11, 6), nn::Linear(6, 6), nn::Tanh()),
                          at::arange(10).view({2, 5})));
  nn::GRU gru(nn::GRUOptions(6, 10).num_layers(2).batch_first(true));
  all.push_back({"recurrent", gru->parameters(),
                 [gru](const at::Tensor& x) mutable { return std::get<0>(gru->forward(x)); }, at::randn({3, 7, 6})});
  nn::Linear shared(9, 9);
  all.push_back({"one layer three times, with a skip", shared->parameters(),
                 [shared](const at::Tensor& x) mutable {
                   return shared(at::relu(shared(at::relu(shared(x))))) + x * shared->bias;
                 },
                 at::randn({5, 9})});
  nn::Linear aside(4, 4);
  all.push_back({"input not used", aside->parameters(),
                 [aside](const at::Tensor& x) mutable { return aside(at::ones_like(x)); }, at::randn({5, 4})});
  return all;
}

/// Parameter gradients, then the input's gradient.
using Gradients = std::vector<at::Tensor>;

void zero_gradients(const Example& example) {
  for (at::Tensor parameter : example.parameters) parameter.mutable_grad() = at::zeros_like(parameter);
}

Gradients gradients_of(const Example& example, const at::Tensor& input) {
  Gradients gradients;
  for (const at::Tensor& parameter : example.parameters) gradients.push_back(parameter.grad().clone());
  gradients.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input));
  return gradients;
}

at::Tensor leaf_of(const Example& example) {
  return example.input.detach().requires_grad_(at::isFloatingType(example.input.scalar_type()));
}

/// Two micro-batches, as gradients accumulate.
template <class Step>
Gradients run_twice(const Example& example, const Step& step) {
  zero_gradients(example);
  at::Tensor input;
  for (int i = 0; i < 2; ++i) {
    input = leaf_of(example);
    step(input);
  }
  return gradients_of(example, input);
}

at::Tensor gradient_for(const at::Tensor& output) {
  return at::sin(at::arange(output.numel(), output.options())).view(output.sizes());
}

Gradients plain(const Example& example) {
  return run_twice(example, [&](const at::Tensor& input) {
    const at::Tensor output = example.function(input);
    output.backward(gradient_for(output));
  });
}

Gradients through(const Example& example, bool deferred) {
  return run_twice(example, [&](const at::Tensor& input) {
    const auto queue = c10::make_intrusive<WeightGradients>();
    const WeightGradients::Scope scope(queue);
    const at::Tensor output = split_backward(example.function, input);
    std::vector<at::Tensor> before;
    for (const at::Tensor& parameter : example.parameters) before.push_back(parameter.grad().clone());
    if (deferred) queue->defer();
    output.backward(gradient_for(output));
    if (!deferred) return;
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(at::equal(example.parameters[i].grad(), before[i])) << "I touched parameter " << i;
    EXPECT_EQ(queue->num_deferred(), 1U);
    queue->run();
  });
}

void expect_same_bits(const Gradients& actual, const Gradients& expected, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(actual[i], expected[i])) << what << ", gradient " << i;
}

TEST(SplitBackwardTest, WholeAndSplitHaveTheBitsOfPlainAutograd) {
  for (const Example& example : examples()) {
    const Gradients expected = plain(example);
    expect_same_bits(through(example, /*deferred=*/false), expected, example.name + ", whole");
    expect_same_bits(through(example, /*deferred=*/true), expected, example.name + ", split");
  }
}

/// Expects that hooks on what lies between two layers, of which two count their calls, run once per backward.
template <class Between>
void expect_hooks_to_run_once(const Between& between) {
  nn::Linear first(6, 6);
  nn::Linear second(6, 6);
  int calls = 0;
  const Example example{"hooks",
                        {first->weight, first->bias, second->weight, second->bias},
                        [&](const at::Tensor& x) { return between(first(x), second, calls); },
                        at::randn({4, 6})};
  const Gradients expected = plain(example);
  EXPECT_EQ(calls, 4);
  expect_same_bits(through(example, /*deferred=*/true), expected, "split");
  EXPECT_EQ(calls, 8);
}

TEST(SplitBackwardTest, HooksOnTensorsRunOnce) {
  expect_hooks_to_run_once([](const at::Tensor& hidden, nn::Linear& second, int& calls) {
    hidden.register_hook([&](const at::Tensor& gradient) { return ++calls, gradient * 3; });
    const at::Tensor result = second(hidden);
    result.register_hook([&](const at::Tensor& gradient) { return ++calls, gradient * 5; });
    return result;
  });
}

TEST(SplitBackwardTest, GradientsOfInnerTensorsAreRetainedOnce) {
  nn::Linear layer(6, 6);
  at::Tensor hidden;
  const auto queue = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(queue);
  const auto function = [&](const at::Tensor& x) {
    hidden = layer(x);
    hidden.retain_grad();
    return hidden * 2;
  };
  const at::Tensor output = split_backward(function, at::randn({4, 6}).requires_grad_());
  queue->defer();
  output.backward(at::ones_like(output));
  queue->run();
  EXPECT_TRUE(at::equal(hidden.grad(), at::full({4, 6}, 2.0)));
}

TEST(SplitBackwardTest, InputGradientFreesUnneededTensors) {
  nn::Linear layer(4, 4);
  c10::weak_intrusive_ptr<c10::StorageImpl> activation = at::empty({}).storage().getWeakStorageImpl();
  const auto function = [&](const at::Tensor& x) {
    const at::Tensor result = layer(x).sigmoid();  // kept only for the backward of sigmoid
    activation = result.storage().getWeakStorageImpl();
    return result * 2;
  };
  const auto queue = c10::make_intrusive<WeightGradients>();
  {
    const WeightGradients::Scope scope(queue);
    const at::Tensor output = split_backward(function, at::randn({3, 4}).requires_grad_());
    queue->defer();
    EXPECT_FALSE(activation.expired());
    output.backward(at::ones_like(output));
  }
  EXPECT_TRUE(activation.expired());
  EXPECT_FALSE(layer->weight.grad().defined());
  queue->run();
  EXPECT_TRUE(layer->weight.grad().defined());
}

TEST(SplitBackwardTest, RunsOnlyTheFunctionWithoutGradMode) {
  const at::NoGradGuard no_graph;
  nn::Linear layer(4, 4);
  const at::Tensor input = at::randn({3, 4});
  const at::Tensor output = split_backward([&](const at::Tensor& x) { return layer(x); }, input);
  EXPECT_FALSE(output.requires_grad());
  EXPECT_TRUE(at::equal(output, layer(input)));
}

/// A post hook as Python's Node.register_hook adds it: scales all gradients that the node gives.
struct Doubles : torch::autograd::FunctionPostHook {
  explicit Doubles(int& calls) : calls(calls) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& given,
                                            const torch::autograd::variable_list& /*arrived*/) override {
    ++calls;
    torch::autograd::variable_list scaled;
    for (const at::Tensor& gradient : given) scaled.push_back(gradient.defined() ? gradient * 2 : gradient);
    return scaled;
  }
  int& calls;
};

TEST(SplitBackwardTest, PostHooksOfNodesRunOnceOnAllGradients) {
  expect_hooks_to_run_once([](const at::Tensor& hidden, nn::Linear& second, int& calls) {
    hidden.grad_fn()->add_post_hook(std::make_unique<Doubles>(calls));
    const at::Tensor squared = hidden * hidden * second->bias;
    squared.grad_fn()->add_post_hook(std::make_unique<Doubles>(calls));
    return second(squared);
  });
}

TEST(SplitBackwardTest, AConstantOutputGivesZeros) {
  for (const bool deferred : {false, true}) {
    const at::Tensor input = at::randn({2}).requires_grad_();
    const auto queue = c10::make_intrusive<WeightGradients>();
    const WeightGradients::Scope scope(queue);
    const at::Tensor output = split_backward([](const at::Tensor& x) { return at::ones_like(x); }, input);
    if (deferred) queue->defer();
    output.backward(at::ones_like(output));
    queue->run();
    EXPECT_TRUE(at::equal(input.grad(), at::zeros({2})));
  }
}

TEST(SplitBackwardTest, AnUntrainedFirstStagePassesNothingBack) {
  nn::Embedding frozen(5, 3);
  frozen->weight.set_requires_grad(false);
  const auto queue = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(queue);
  const at::Tensor output = split_backward([&](const at::Tensor& ids) { return frozen(ids); }, at::arange(4));
  queue->defer();
  output.backward(at::ones_like(output));
  queue->run();
  EXPECT_FALSE(frozen->weight.grad().defined());
}

}  // namespace
}  // namespace chimera
