#include "model/layers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor tokens(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

TEST(LayersTest, LinearReadsBothLayouts) {
  const at::Tensor input = at::randn({2, 3, 4}, at::kDouble);
  const at::Tensor weight = at::randn({5, 4}, at::kDouble);  // [out, in]
  const at::Tensor bias = at::randn({5}, at::kDouble);
  const at::Tensor expected = at::matmul(input, weight.t()) + bias;
  EXPECT_TRUE(at::allclose(linear(input, {weight, bias, WeightLayout::OutIn}), expected, 1e-12, 1e-12));
  const Linear transposed = {weight.t().contiguous(), bias, WeightLayout::InOut};
  EXPECT_TRUE(at::allclose(linear(input, transposed), expected, 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(linear(input, {weight, {}, WeightLayout::OutIn}), expected - bias, 1e-12, 1e-12));
}

TEST(LayersTest, CausalAttentionDoesNotSeeTheFuture) {
  const at::Tensor x = at::randn({1, 5, 6}, at::kDouble);
  at::Tensor changed = x.clone();
  changed.narrow(1, 3, 2).fill_(9);
  const at::Tensor before = causal_attention({x, x, x}, 2);
  const at::Tensor after = causal_attention({changed, changed, changed}, 2);
  EXPECT_TRUE(at::allclose(before.narrow(1, 0, 3), after.narrow(1, 0, 3), 1e-12, 1e-12));
  EXPECT_FALSE(at::allclose(before.narrow(1, 3, 2), after.narrow(1, 3, 2)));
}

/// Whole samples and slices, with queries that share keys.
TEST(LayersTest, AttentionPerDocumentIsThatOfTheMask) {
  at::manual_seed(5);
  const at::Tensor documents = at::tensor({0, 0, 0, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0, 1}, at::kLong).view({2, 7});
  for (const std::int64_t first : {0, 1, 4, 6}) {
    const auto results = [&](const AttentionLimits& limits) {
      at::manual_seed(6);
      const auto leaf = [](std::int64_t length, std::int64_t width) {
        return at::randn({2, length, width}, at::kDouble).requires_grad_();
      };
      const QueryKeyValue leaves{leaf(7 - first, 8), leaf(7, 4), leaf(7, 4)};
      const at::Tensor output = causal_attention(leaves, 4, {}, limits);
      torch::autograd::backward({output}, {at::randn(output.sizes(), at::kDouble)});
      return std::vector<at::Tensor>{output.detach(), leaves.query.grad(), leaves.key.grad(), leaves.value.grad()};
    };
    const AttentionLimits parts = document_limits(documents, at::kDouble, first, /*dropout=*/false);
    ASSERT_TRUE(parts.parts) << first;
    const auto found = results(parts);
    const auto expected = results({document_mask(documents, at::kDouble, first)});
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-12, 1e-12)) << i << " from token " << first;
  }
  EXPECT_TRUE(document_limits(documents, at::kDouble, 0, /*dropout=*/true).mask.defined());
  EXPECT_FALSE(document_limits(at::zeros({2, 7}, at::kLong), at::kDouble, 0, /*dropout=*/false).parts) << "no cost";
}

/// Attention sees each document alone, in the fused kernel and in the operations used with dropout.
TEST(LayersTest, CausalAttentionStaysInsideDocuments) {
  const at::Tensor x = at::randn({2, 6, 8}, at::kDouble);
  const at::Tensor documents = at::tensor({0, 0, 0, 1, 1, 2, 0, 1, 1, 1, 1, 1}, at::kLong).view({2, 6});
  const at::Tensor mask = document_mask(documents, at::kDouble);
  const auto alone = [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    const at::Tensor part = x.narrow(0, row, 1).narrow(1, first, count);
    return causal_attention({part, part, part}, 2);
  };
  const at::Tensor expected = at::cat(
      {at::cat({alone(0, 0, 3), alone(0, 3, 2), alone(0, 5, 1)}, 1), at::cat({alone(1, 0, 1), alone(1, 1, 5)}, 1)});
  EXPECT_TRUE(at::allclose(causal_attention({x, x, x}, 2, {}, {mask}), expected, 1e-12, 1e-12));
  const Dropout nothing = {.probability = 1e-14};
  EXPECT_TRUE(at::allclose(causal_attention({x, x, x}, 2, nothing, {mask}), expected, 1e-12, 1e-12));
  const at::Tensor one = document_mask(at::zeros({2, 6}, at::kLong), at::kDouble);
  EXPECT_TRUE(at::allclose(causal_attention({x, x, x}, 2, {}, {one}), causal_attention({x, x, x}, 2), 1e-12, 1e-12));
}

TEST(LayersTest, MaskedAttentionDoesNotSeePadding) {
  const at::Tensor x = at::randn({2, 5, 6}, at::kDouble);
  at::Tensor mask = at::ones({2, 5}, at::kBool);
  mask[1][4] = false;
  at::Tensor changed = x.clone();
  changed[1][4].fill_(9);
  const at::Tensor before = masked_attention({x, x, x}, mask, 2);
  EXPECT_TRUE(at::allclose(before, masked_attention({x, changed, changed}, mask, 2), 1e-12, 1e-12));
  EXPECT_FALSE(at::allclose(before, masked_attention({x, x, x}, {}, 2)));
}

TEST(LayersTest, MaskedAttentionWithoutAMaskSeesEverything) {
  const at::Tensor x = at::randn({2, 5, 6}, at::kDouble);
  const at::Tensor all = at::ones({2, 5}, at::kBool);
  EXPECT_TRUE(at::allclose(masked_attention({x, x, x}, {}, 2), masked_attention({x, x, x}, all, 2), 1e-12, 1e-12));
}

// A probability too small to drop anything isolates the difference between the fused kernel and our own operations.
TEST(LayersTest, AttentionWithDropoutMatchesTheFusedKernel) {
  const Dropout nothing = {.probability = 1e-14};
  const QueryKeyValue x = {at::randn({2, 5, 6}, at::kDouble), at::randn({2, 5, 6}, at::kDouble),
                           at::randn({2, 5, 6}, at::kDouble)};
  at::Tensor mask = at::ones({2, 5}, at::kBool);
  mask[1][4] = false;
  EXPECT_TRUE(at::allclose(causal_attention(x, 2, nothing), causal_attention(x, 2), 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(masked_attention(x, mask, 2, nothing), masked_attention(x, mask, 2), 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(masked_attention(x, {}, 2, nothing), masked_attention(x, {}, 2), 1e-12, 1e-12));
}

TEST(LayersTest, AttentionDropsProbabilitiesAfterTheSoftmax) {
  // If all keys have the same value, attention returns it times the sum of the probabilities: 1 without dropout.
  const at::Tensor ones = at::ones({1, 200, 2}, at::kDouble);
  const QueryKeyValue x = {at::randn({1, 200, 2}, at::kDouble), at::randn({1, 200, 2}, at::kDouble), ones};
  const at::Tensor sums = masked_attention(x, {}, 1, {.probability = 0.5});
  EXPECT_NEAR(sums.mean().item<double>(), 1, 0.1);
  EXPECT_GT(sums.std().item<double>(), 0.01);
}

TEST(LayersTest, CrossEntropySumSkipsIgnoredTargets) {
  const at::Tensor logits = at::zeros({2, 2, 8}, at::kDouble);
  const at::Tensor targets = tokens({3, kIgnored, 0, 7}).view({2, 2});
  EXPECT_NEAR(cross_entropy_sum(logits, targets).item<double>(), 3 * std::log(8.0), 1e-12);
  EXPECT_EQ(cross_entropy_sum(logits, at::full_like(targets, kIgnored)).item<double>(), 0.0);
}

TEST(LayersTest, CrossEntropyOfBfloat16IsComputedInFloat32) {
  const at::Tensor logits = at::zeros({1, 8}, at::kBFloat16);
  EXPECT_EQ(cross_entropy_sum(logits, tokens({1})).scalar_type(), at::kFloat);
}

TEST(LayersTest, NamesTargetsThatDoNotFit) {
  const at::Tensor logits = at::zeros({8, 4});
  EXPECT_THAT(
      [&] {
        (void)cross_entropy_sum(logits, tokens({0, 1, 2, 3, 4, 3, 2, 1}));
      },
      ThrowsMessage<ConfigError>(HasSubstr("target 4 lies outside")));
}

TEST(LayersTest, TargetPlacesExcludeIgnoredTargets) {
  EXPECT_TRUE(at::equal(target_indices(tokens({kIgnored, 3, 0, kIgnored, 5})), tokens({1, 2, 4})));
}

}  // namespace
}  // namespace chimera
