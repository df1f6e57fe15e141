#include "inference/continuation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "support/message_of.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kAlmostOne = 1 - 0x1p-53;  // the largest number that CounterRandom draws

at::Tensor scores(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

/// Scores with these probabilities at temperature 1.
at::Tensor scores_of(const std::vector<double>& probabilities) { return scores(probabilities).log(); }

/// The tokens that can be drawn.
std::vector<std::int64_t> drawable(const at::Tensor& logits, const SamplingOptions& options) {
  const at::Tensor tokens = token_probabilities(logits, options).nonzero().flatten();
  return {tokens.const_data_ptr<std::int64_t>(), tokens.const_data_ptr<std::int64_t>() + tokens.numel()};
}

std::string options_refusal(const SamplingOptions& options) {
  return testing::message_of([&] { require_valid(options); });
}

TEST(SamplingTest, GreedyTakesTheFirstOfTheHighestScores) {
  EXPECT_EQ(choose_token(scores({1, 3, -2, 3, 0}), {}, 0.9), 1);
  EXPECT_EQ(choose_token(scores({-5}), {}, 0), 0);
  // They are equal in float32.
  EXPECT_EQ(choose_token(scores({1, 1 + 1e-12}), {}, 0), 0);
}

TEST(SamplingTest, TopKKeepsTies) {
  const at::Tensor logits = scores({1, 3, 2, 2, 0, 2});
  EXPECT_THAT(drawable(logits, {.temperature = 1, .top_k = 1}), ElementsAre(1));
  EXPECT_THAT(drawable(logits, {.temperature = 1, .top_k = 2}), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(drawable(logits, {.temperature = 1, .top_k = 4}), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(drawable(logits, {.temperature = 1, .top_k = 5}), ElementsAre(0, 1, 2, 3, 5));
  for (const std::int64_t all : {0, 6, 7, 1000})
    EXPECT_EQ(drawable(logits, {.temperature = 1, .top_k = all}).size(), 6U) << all;
}

TEST(SamplingTest, TopPDropsTheTail) {
  const at::Tensor logits = scores_of({0.1, 0.4, 0.2, 0.3});
  const auto kept = [&](double share) { return drawable(logits, {.temperature = 1, .top_p = share}); };
  EXPECT_THAT(kept(1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(kept(0.95), ElementsAre(0, 1, 2, 3));  // 0.1 is more than 1 - 0.95
  EXPECT_THAT(kept(0.85), ElementsAre(1, 2, 3));
  EXPECT_THAT(kept(0.65), ElementsAre(1, 3));
  EXPECT_THAT(kept(0.3), ElementsAre(1));
  EXPECT_THAT(kept(1e-300), ElementsAre(1)) << "at least one";
  // Each has probability 1/4 exactly; tokens that sum to exactly 1 - p are dropped.
  const at::Tensor even = scores({7, 7, 7, 7});
  EXPECT_EQ(drawable(even, {.temperature = 1, .top_p = 0.75}).size(), 3U);
  EXPECT_EQ(drawable(even, {.temperature = 1, .top_p = 0.5}).size(), 2U);
  EXPECT_EQ(drawable(even, {.temperature = 1, .top_p = 0.25}).size(), 1U);
}

TEST(SamplingTest, TemperatureComesFirstThenTopKThenTopP) {
  const at::Tensor logits = scores_of({0.4, 0.3, 0.2, 0.1});
  EXPECT_THAT(drawable(logits, {.temperature = 1, .top_p = 0.5}), ElementsAre(0, 1));
  EXPECT_THAT(drawable(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5}), ElementsAre(0));
  EXPECT_THAT(drawable(logits, {.temperature = 1e6, .top_p = 0.7}), ElementsAre(0, 1, 2)) << "all are nearly equal";
  EXPECT_THAT(drawable(logits, {.temperature = 0.1, .top_p = 0.9}), ElementsAre(0));
}

TEST(SamplingTest, ProbabilitiesAreRenormalized) {
  const at::Tensor logits = scores_of({0.4, 0.1, 0.2, 0.3});
  const at::Tensor expected = scores({4.0 / 7, 0, 0, 3.0 / 7});
  EXPECT_TRUE(at::allclose(token_probabilities(logits, {.temperature = 1, .top_k = 2}), expected, 1e-6, 0));
  const at::Tensor colder = scores({16.0 / 30, 1.0 / 30, 4.0 / 30, 9.0 / 30});  // squares
  EXPECT_TRUE(at::allclose(token_probabilities(logits, {.temperature = 0.5}), colder, 1e-6, 0));
}

TEST(SamplingTest, AnyTemperatureGivesNumbers) {
  const at::Tensor logits = scores({-1e30, 1e30, 3e38, 0});
  EXPECT_THAT(drawable(logits, {.temperature = 1e-300}), ElementsAre(2));
  EXPECT_THAT(drawable(logits, {.temperature = 1e100}), ElementsAre(0, 1, 2, 3));
}

TEST(SamplingTest, DrawsTokensByTheirProbabilities) {
  const std::vector<double> probabilities = {0.05, 0.4, 0.25, 0.1, 0.2};
  const at::Tensor logits = scores_of(probabilities);
  constexpr int kDraws = 20'000;
  const CounterRandom random(3, "draws");
  std::vector<int> counts(probabilities.size());
  for (int i = 0; i < kDraws; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    ++counts[static_cast<std::size_t>(choose_token(logits, {.temperature = 1}, random.uniform(index)))];
  }
  double chi_square = 0;
  for (std::size_t t = 0; t < counts.size(); ++t) {
    const double expected = kDraws * probabilities[t];
    chi_square += std::pow(counts[t] - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 18.5) << "4 degrees of freedom: one seed in a thousand is above";
}

TEST(SamplingTest, NeverDrawsDroppedTokens) {
  const at::Tensor logits = scores({0, 5, 1, 5, 0});
  const SamplingOptions options{.temperature = 1, .top_k = 2};
  EXPECT_EQ(choose_token(logits, options, 0), 1);
  EXPECT_EQ(choose_token(logits, options, 0.499), 1);
  EXPECT_EQ(choose_token(logits, options, 0.501), 3);
  EXPECT_EQ(choose_token(logits, options, kAlmostOne), 3);
}

TEST(SamplingTest, RefusesScoresThatAreNotFinite) {
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const double temperature : {0.0, 1.0})
      EXPECT_THROW((void)choose_token(scores({1, wrong, 2}), {.temperature = temperature}, 0.5), Error);
  }
}

TEST(SamplingTest, RefusesOptionsOutOfTheirRanges) {
  EXPECT_EQ(options_refusal({.temperature = 3, .top_k = 7, .top_p = 0.01, .seed = 0}), "");
  EXPECT_THAT(options_refusal({.temperature = -0.1}), HasSubstr("--temperature must be at least 0, not -0.1"));
  EXPECT_THAT(options_refusal({.temperature = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("--temperature"));
  EXPECT_THAT(options_refusal({.top_k = -1}), HasSubstr("--top-k"));
  EXPECT_THAT(options_refusal({.top_p = 0}), HasSubstr("--top-p must be above 0 and at most 1, not 0"));
  EXPECT_THAT(options_refusal({.top_p = 1.5}), HasSubstr("--top-p"));
  EXPECT_THAT(options_refusal({.seed = -1}), HasSubstr("--seed"));
}

}  // namespace
}  // namespace chimera
