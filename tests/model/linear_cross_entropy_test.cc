#include "model/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "core/error.h"
#include "model/layers.h"
#include "model/linear.h"
#include "runtime/memory_meter.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kHeadTokens = 23;
constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kHeadVocabulary = 11;
constexpr double kScale = 0.3;
/// Chunks of 1, 4 and 5 tokens (the last chunk of 5 is smaller), and a single chunk.
constexpr std::int64_t kLogitsOfChunks[] = {1, 4 * kHeadVocabulary, 5 * kHeadVocabulary, 1000 * kHeadVocabulary};

at::Tensor trained(const at::Tensor& tensor) { return tensor.detach().clone().set_requires_grad(true); }

/// Hidden states, a head and targets, some of them ignored.
struct Problem {
  at::Tensor hidden = at::randn({kHeadTokens, kWidth}, at::kDouble);
  at::Tensor weight = at::randn({kHeadVocabulary, kWidth}, at::kDouble);
  at::Tensor bias = at::randn({kHeadVocabulary}, at::kDouble);
  at::Tensor targets = some_targets();

  static at::Tensor some_targets() {
    at::Tensor targets = at::randint(kHeadVocabulary, {kHeadTokens}, at::kLong);
    targets[0] = targets[7] = targets[22] = kIgnored;
    return targets;
  }

  /// New leaves, so that gradients start empty.
  [[nodiscard]] Linear head(WeightLayout layout = WeightLayout::OutIn) const {
    const at::Tensor matrix = layout == WeightLayout::OutIn ? weight : weight.t().contiguous();
    return {trained(matrix), trained(bias), layout};
  }
};

/// Results of one micro-batch.
struct Outcome {
  at::Tensor loss;
  at::Tensor hidden;
  at::Tensor weight;
  at::Tensor bias;
};

void expect_close_outcomes(const Outcome& actual, const Outcome& expected, double tolerance) {
  const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).norm() / b.norm()).template item<double>() <= tolerance;
  };
  EXPECT_TRUE(close(actual.loss, expected.loss));
  EXPECT_TRUE(close(actual.hidden, expected.hidden));
  EXPECT_TRUE(close(actual.weight, expected.weight));
  EXPECT_TRUE(close(actual.bias, expected.bias));
}

void expect_same_bits(const Outcome& actual, const Outcome& expected) {
  EXPECT_TRUE(at::equal(actual.loss, expected.loss));
  EXPECT_TRUE(at::equal(actual.hidden, expected.hidden));
  EXPECT_TRUE(at::equal(actual.weight, expected.weight));
  EXPECT_TRUE(at::equal(actual.bias, expected.bias));
}

/// Uses autograd and all logits at once.
Outcome of_autograd(const Problem& problem) {
  const Linear head = problem.head();
  const at::Tensor hidden = trained(problem.hidden);
  const at::Tensor loss = cross_entropy_sum(at::linear(hidden, head.weight, head.bias), problem.targets) * kScale;
  torch::autograd::backward({loss}, {});
  return {loss.detach(), hidden.grad(), head.weight.grad(), head.bias.grad()};
}

/// Uses linear_cross_entropy(), in B or in I and W; backward starts from `factor` times the loss.
Outcome in_chunks(const Problem& problem, const Linear& head, std::int64_t logits_of_chunk, bool splits = false,
                  double factor = 1) {
  const at::Tensor hidden = trained(problem.hidden);
  const auto queue = c10::make_intrusive<WeightGradients>();
  at::Tensor loss;
  {
    const WeightGradients::Scope scope(queue);
    loss = linear_cross_entropy(hidden, head, problem.targets, kScale, logits_of_chunk) * factor;
  }
  if (splits) queue->defer();
  torch::autograd::backward({loss}, {});
  if (splits) {
    EXPECT_FALSE(head.weight.grad().defined()) << "W has it";
    queue->run();
  }
  return {loss.detach(), hidden.grad(), head.weight.grad(), head.bias.grad()};
}

TEST(LinearCrossEntropyTest, LossAndGradientsEqualThoseOfAllLogitsAtOnce) {
  const Problem problem;
  const Outcome expected = of_autograd(problem);
  for (const std::int64_t logits : kLogitsOfChunks) {
    expect_close_outcomes(in_chunks(problem, problem.head(), logits), expected, 1e-14);
    const Linear transposed = problem.head(WeightLayout::InOut);
    Outcome outcome = in_chunks(problem, transposed, logits);
    outcome.weight = outcome.weight.t();
    expect_close_outcomes(outcome, expected, 1e-14);
  }
}

TEST(LinearCrossEntropyTest, SplitBackwardGivesTheBitsOfTheWhole) {
  const Problem problem;
  for (const std::int64_t logits : kLogitsOfChunks)
    expect_same_bits(in_chunks(problem, problem.head(), logits, /*splits=*/true),
                     in_chunks(problem, problem.head(), logits));
}

TEST(LinearCrossEntropyTest, LossFactorScalesAllGradients) {
  const Problem problem;
  Outcome expected = of_autograd(problem);
  for (at::Tensor* number : {&expected.loss, &expected.hidden, &expected.weight, &expected.bias})
    *number = *number * 2.5;
  for (const std::int64_t logits : kLogitsOfChunks)
    expect_close_outcomes(in_chunks(problem, problem.head(), logits, /*splits=*/false, 2.5), expected, 1e-14);
}

TEST(LinearCrossEntropyTest, AddsToExistingGradients) {
  const Problem problem;
  const Linear head = problem.head();
  (void)in_chunks(problem, head, kLogitsOfChunks[1]);
  (void)in_chunks(problem, head, kLogitsOfChunks[1]);
  const Outcome once = of_autograd(problem);
  EXPECT_TRUE(at::allclose(head.weight.grad(), 2 * once.weight, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(head.bias.grad(), 2 * once.bias, 1e-13, 1e-13));
}

TEST(LinearCrossEntropyTest, WithoutAGraphTheLossHasTheSameBits) {
  const Problem problem;
  for (const std::int64_t logits : kLogitsOfChunks) {
    const at::NoGradGuard no_graph;
    const at::Tensor loss = linear_cross_entropy(problem.hidden, problem.head(), problem.targets, kScale, logits);
    const at::AutoGradMode with_graph(true);
    EXPECT_TRUE(at::equal(loss, in_chunks(problem, problem.head(), logits).loss));
  }
}

TEST(LinearCrossEntropyTest, WithoutATargetThereIsNoLossAndNoGradient) {
  Problem problem;
  for (const at::Tensor& targets : {at::full({kHeadTokens}, kIgnored, at::kLong), at::empty({0}, at::kLong)}) {
    problem.targets = targets;
    problem.hidden = problem.hidden.narrow(0, 0, targets.numel());
    const Linear head = problem.head();
    head.weight.mutable_grad() = at::zeros_like(head.weight);
    head.bias.mutable_grad() = at::zeros_like(head.bias);
    const Outcome outcome = in_chunks(problem, head, kLogitsOfChunks[1]);
    EXPECT_EQ(outcome.loss.item<double>(), 0);
    EXPECT_EQ(outcome.hidden.abs().sum().item<double>(), 0);
    EXPECT_EQ(outcome.weight.abs().sum().item<double>(), 0);
    EXPECT_EQ(outcome.bias.abs().sum().item<double>(), 0);
  }
}

// As layers compute in bfloat16: a bfloat16 copy of the matrix, its gradient in float32.
TEST(LinearCrossEntropyTest, InBfloat16TheLossIsFloat32AndGradientsAddUpInFloat32) {
  const Problem problem;
  const Outcome expected = of_autograd(problem);
  Problem narrow = problem;
  for (at::Tensor* tensor : {&narrow.hidden, &narrow.weight, &narrow.bias}) *tensor = tensor->to(at::kBFloat16);
  for (const std::int64_t logits : kLogitsOfChunks) {
    const Linear head = narrow.head();
    for (at::Tensor leaf : {head.weight, head.bias}) {
      at::impl::GetVariableHooks()->set_grad_dtype(leaf, at::kFloat);
      leaf.mutable_grad() = at::zeros_like(leaf, at::kFloat);
    }
    const Outcome outcome = in_chunks(narrow, head, logits);
    EXPECT_EQ(outcome.loss.scalar_type(), at::kFloat);
    EXPECT_EQ(outcome.hidden.scalar_type(), at::kBFloat16);
    EXPECT_EQ(outcome.weight.scalar_type(), at::kFloat);
    expect_close_outcomes(outcome, expected, 2e-2);
  }
}

/// Peak of live bytes during F and B, and live bytes between them, without hidden states and head.
std::pair<std::int64_t, std::int64_t> bytes_of(std::int64_t tokens, std::int64_t vocabulary, std::int64_t logits) {
  const Linear head{trained(at::zeros({vocabulary, 1})), {}, WeightLayout::OutIn};
  head.weight.mutable_grad() = at::zeros_like(head.weight);
  const at::Tensor hidden = trained(at::zeros({tokens, 1}));
  const at::Tensor targets = at::zeros({tokens}, at::kLong);
  MemoryMeter meter(1);
  const MemoryMeter::Recording recording(meter, RankId(0));
  const at::Tensor loss = linear_cross_entropy(hidden, head, targets, kScale, logits);
  const std::int64_t between = meter.usage(RankId(0)).live;
  torch::autograd::backward({loss}, {});
  return {meter.usage(RankId(0)).peak, between};
}

TEST(LinearCrossEntropyTest, KeepsOneChunkOfLogitsAndHoldsAtMostTwo) {
  constexpr std::int64_t kLarge = 10'000;
  constexpr std::int64_t kChunk = 4 * kLarge * static_cast<std::int64_t>(sizeof(float));
  constexpr std::int64_t kOther = 16'384;  // hidden states, targets and losses of 40 tokens
  const auto [peak, between] = bytes_of(40, kLarge, 4 * kLarge);
  EXPECT_LE(peak, 2 * kChunk + kOther);
  EXPECT_LE(between, kChunk + kOther);
}

TEST(LinearCrossEntropyTest, NamesATargetOutsideTheVocabulary) {
  const Problem problem;
  EXPECT_THAT(
      [&] {
        (void)linear_cross_entropy(problem.hidden, problem.head(), at::full({kHeadTokens}, kHeadVocabulary, at::kLong),
                                   1);
      },
      ThrowsMessage<ConfigError>(HasSubstr("target 11 lies outside the model's vocabulary of 11")));
}

}  // namespace
}  // namespace chimera
