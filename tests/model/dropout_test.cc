#include "model/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

namespace chimera {
namespace {

constexpr auto kSomeSite = DropoutSite::FeedForwardOutput;

Dropout masks(double probability) {
  return {.probability = probability, .seed = 1, .step = 2, .first_sample = 8, .layer = 3};
}

/// Dropout applied to ones.
at::Tensor mask(const Dropout& masks, DropoutSite site = kSomeSite) {
  return dropout(at::ones({4, 5, 1000}), masks, site);
}

/// Fraction of elements that two masks both keep or both drop.
double agreement(const at::Tensor& a, const at::Tensor& b) { return a.eq(b).to(at::kDouble).mean().item<double>(); }

TEST(DropoutTest, DropsTheGivenShareAndKeepsTheMean) {
  constexpr double kCount = 1'000'000;
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor x = dropout(at::ones({2, 500'000}, at::kDouble), masks(p), kSomeSite);
    const double variance = p / (1 - p);
    EXPECT_NEAR(x.eq(0).to(at::kDouble).mean().item<double>(), p, 5 * std::sqrt(p * (1 - p) / kCount));
    EXPECT_NEAR(x.mean().item<double>(), 1, 5 * std::sqrt(variance / kCount));
    EXPECT_NEAR(x.var().item<double>(), variance, 0.01 * variance);
    EXPECT_EQ(x.max().item<double>(), 1 / (1 - p));
  }
}

TEST(DropoutTest, MasksOfOtherKeysAreIndependent) {
  constexpr double kProbability = 0.4;
  const Dropout one = masks(kProbability);
  std::vector<at::Tensor> others = {mask(one.in_layer(4)), mask(one, DropoutSite::AttentionOutput)};
  for (std::uint64_t Dropout::*field : {&Dropout::seed}) {
    Dropout other = one;
    ++(other.*field);
    others.push_back(mask(other));
  }
  for (std::int64_t Dropout::*field : {&Dropout::step, &Dropout::first_sample}) {
    Dropout other = one;
    ++(other.*field);
    others.push_back(mask(other));
  }
  others.push_back(mask(one).roll(1, 0));   // another sample
  others.push_back(mask(one).roll(1, 2));   // another element
  others.push_back(mask(one).roll(64, 2));  // another group of random words
  const double expected = 0.4 * 0.4 + 0.6 * 0.6;
  for (const at::Tensor& other : others)
    EXPECT_NEAR(agreement(mask(one), other), expected, 5 * std::sqrt(expected * (1 - expected) / 20'000));
}

TEST(DropoutTest, ASamplesMaskDoesNotDependOnItsMicroBatch) {
  const at::Tensor x = at::randn({4, 6, 50});
  Dropout later = masks(0.3);
  later.first_sample += 2;
  const at::Tensor halves = at::cat({dropout(x.narrow(0, 0, 2), masks(0.3), kSomeSite),  //
                                     dropout(x.narrow(0, 2, 2), later, kSomeSite)});
  EXPECT_TRUE(at::equal(dropout(x, masks(0.3), kSomeSite), halves));
}

TEST(DropoutTest, MaskDependsNeitherOnThreadsNorOnTypeNorOnStrides) {
  at::set_num_threads(1);
  const at::Tensor x = at::ones({3, 70, 700});
  const at::Tensor dropped = dropout(x, masks(0.5), kSomeSite);  // times 2: exact in any type
  EXPECT_TRUE(at::equal(dropout(x.transpose(1, 2).contiguous().transpose(1, 2), masks(0.5), kSomeSite), dropped));
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16})
    EXPECT_TRUE(at::equal(dropout(x.to(type), masks(0.5), kSomeSite), dropped.to(type)));
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(dropout(x, masks(0.5), kSomeSite), dropped));
  at::set_num_threads(1);
}

TEST(DropoutTest, BackwardUsesTheMaskOfForward) {
  const at::Tensor x = at::randn({2, 3, 500}, at::kDouble).requires_grad_();
  const at::Tensor gradient = at::randn({2, 3, 500}, at::kDouble);
  torch::autograd::backward({dropout(x, masks(0.2), kSomeSite)}, {gradient});
  EXPECT_TRUE(at::equal(x.grad(), dropout(gradient, masks(0.2), kSomeSite)));
}

TEST(DropoutTest, ZeroProbabilityChangesNothing) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_TRUE(dropout(x, masks(0), kSomeSite).is_same(x));
}

}  // namespace
}  // namespace chimera
