#include "model/layers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/error.h"
#include "model/linear.h"
#include "runtime/memory_meter.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor trained_embedding(const at::Tensor& tensor) { return tensor.detach().clone().set_requires_grad(true); }

/// Tables of 9 tokens and 5 positions, width 3; two sequences of 4 tokens with repetitions.
struct EmbeddingProblem {
  at::Tensor tokens = at::tensor({7, 2, 2, 0, 2, 7, 8, 1}, at::kLong).view({2, 4});
  at::Tensor words = at::randn({9, 3}, at::kDouble);
  at::Tensor positions = at::randn({5, 3}, at::kDouble);
  at::Tensor gradient = at::randn({2, 4, 3}, at::kDouble);
};

/// The output, and the gradients of both tables.
struct EmbeddingOutcome {
  at::Tensor output;
  at::Tensor words;
  at::Tensor positions;
};

EmbeddingOutcome of_autograd(const EmbeddingProblem& problem) {
  const at::Tensor words = trained_embedding(problem.words);
  const at::Tensor positions = trained_embedding(problem.positions);
  const at::Tensor output = at::embedding(words, problem.tokens) + positions.narrow(0, 0, 4);
  torch::autograd::backward({output}, {problem.gradient});
  return {output.detach(), words.grad(), positions.grad()};
}

/// Backward in one op (B) or two (I and W).
EmbeddingOutcome by_rows(const EmbeddingProblem& problem, bool splits) {
  const at::Tensor words = trained_embedding(problem.words);
  const at::Tensor positions = trained_embedding(problem.positions);
  const auto queue = c10::make_intrusive<WeightGradients>();
  at::Tensor output;
  {
    const WeightGradients::Scope scope(queue);
    output = add_positions(token_embedding(words, problem.tokens), positions);
  }
  if (splits) queue->defer();
  torch::autograd::backward({output}, {problem.gradient});
  if (splits) {
    EXPECT_FALSE(words.grad().defined() || positions.grad().defined()) << "W has them";
    queue->run();
  }
  return {output.detach(), words.grad(), positions.grad()};
}

TEST(EmbeddingTest, OutputAndGradientsEqualAutograds) {
  const EmbeddingProblem problem;
  const EmbeddingOutcome expected = of_autograd(problem);
  const EmbeddingOutcome outcome = by_rows(problem, /*splits=*/false);
  EXPECT_TRUE(at::equal(outcome.output, expected.output));
  EXPECT_TRUE(at::allclose(outcome.words, expected.words, 1e-14, 1e-14));
  EXPECT_TRUE(at::allclose(outcome.positions, expected.positions, 1e-14, 1e-14));
}

TEST(EmbeddingTest, SplitBackwardGivesTheBitsOfTheWhole) {
  const EmbeddingProblem problem;
  const EmbeddingOutcome whole = by_rows(problem, /*splits=*/false);
  const EmbeddingOutcome split = by_rows(problem, /*splits=*/true);
  EXPECT_TRUE(at::equal(split.words, whole.words));
  EXPECT_TRUE(at::equal(split.positions, whole.positions));
}

// Canonical reduction relies on this rule.
TEST(EmbeddingTest, AddsRowsToTheGradientInTheOrderOfTokens) {
  const EmbeddingProblem problem;
  const at::Tensor words = trained_embedding(problem.words);
  words.mutable_grad() = at::randn({9, 3}, at::kDouble);
  at::Tensor expected = words.grad().clone();
  torch::autograd::backward({token_embedding(words, problem.tokens)}, {problem.gradient});
  const at::Tensor tokens = problem.tokens.flatten();
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    expected[tokens[i].item<std::int64_t>()] += problem.gradient.view({-1, 3})[i];
  EXPECT_TRUE(at::equal(words.grad(), expected));
}

TEST(EmbeddingTest, BackwardAllocatesNoTable) {
  constexpr std::int64_t kRows = 100'000;
  const at::Tensor words = trained_embedding(at::zeros({kRows, 3}));
  words.mutable_grad() = at::zeros_like(words);
  const at::Tensor tokens = at::zeros({2, 4}, at::kLong);
  MemoryMeter meter(1);
  const MemoryMeter::Recording recording(meter, RankId(0));
  torch::autograd::backward({token_embedding(words, tokens)}, {at::ones({2, 4, 3})});
  EXPECT_LT(meter.usage(RankId(0)).peak, kRows);
  EXPECT_EQ(words.grad()[0][0].item<float>(), 8);
}

TEST(EmbeddingTest, NamesTokensAndSequencesThatDoNotFit) {
  const at::Tensor table = at::zeros({8, 4});
  EXPECT_THAT(
      [&] {
        (void)token_embedding(table, at::tensor({0, 8}, at::kLong).view({1, 2}));
      },
      ThrowsMessage<ConfigError>(HasSubstr("token 8 lies outside the model's vocabulary of 8")));
  EXPECT_THAT(
      [&] {
        (void)add_positions(at::zeros({1, 9, 4}), table);
      },
      ThrowsMessage<ConfigError>(HasSubstr("9 tokens is longer than the model's 8 positions")));
}

}  // namespace
}  // namespace chimera
