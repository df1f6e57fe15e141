// Compares Llama's own layers with single ATen operations.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "model/examples.h"
#include "model/layers.h"
#include "model/llama_layers.h"

namespace chimera {
namespace {

using Arguments = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Arguments&)>;

at::Tensor random_doubles(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

/// Results and gradients of both functions agree to the last digits, for a random gradient of the result.
void expect_same(const Function& ours, const Function& plain, const Arguments& values) {
  std::vector<at::Tensor> results[2];
  at::Tensor weights;
  for (const int which : {0, 1}) {
    Arguments arguments;
    for (const at::Tensor& value : values) arguments.push_back(value.detach().clone().requires_grad_());
    const at::Tensor result = (which == 0 ? ours : plain)(arguments);
    if (!weights.defined()) weights = at::randn_like(result);
    (result * weights).sum().backward();
    results[which].push_back(result.detach());
    for (const at::Tensor& argument : arguments) results[which].push_back(argument.grad());
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    const double size = results[1][i].abs().max().item<double>();
    EXPECT_LE((results[0][i] - results[1][i]).abs().max().item<double>(), 1e-13 * size) << i;
  }
}

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor wide = x.to(at::promote_types(x.scalar_type(), at::kFloat));
  return (wide * (wide.square().mean(-1, true) + epsilon).rsqrt()).to(x.scalar_type()) * weight;
}

TEST(RmsNormTest, IsTheFormulaAndItsGradients) {
  at::manual_seed(1);
  constexpr double kEpsilon = 0.1;
  const auto ours = [](const Arguments& a) { return rms_norm(a[0], {a[1], kEpsilon}); };
  const auto plain = [](const Arguments& a) { return plain_rms_norm(a[0], a[1], kEpsilon); };
  for (const std::int64_t width : {1, 5, 16, 20, 67})
    expect_same(ours, plain, {random_doubles({3, 7, width}), random_doubles({width})});
}

TEST(RmsNormTest, RoundsToBfloat16BeforeItScales) {
  at::manual_seed(2);
  const at::Tensor x = random_doubles({4, 48}).to(at::kBFloat16);
  const at::Tensor weight = random_doubles({48}).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(rms_norm(x, {weight, 1e-5}), plain_rms_norm(x, weight, 1e-5)));
}

TEST(SwigluTest, IsTheFormulaAndItsGradients) {
  at::manual_seed(3);
  expect_same([](const Arguments& a) { return swiglu(a[0], a[1]); },
              [](const Arguments& a) { return a[0] * at::sigmoid(a[0]) * a[1]; },
              {random_doubles({3, 17}), random_doubles({3, 17})});
}

ModelConfig rotated(std::int64_t head_size) {
  ModelConfig config = find_model("llama-tiny");
  config.head_size = head_size;
  return config;
}

TEST(RotaryPositionsTest, PairsElementsHalfAHeadApart) {
  const RotaryTable table = rotary_table(rotated(4), 3, at::kDouble);
  const at::Tensor head = at::arange(1, 5, at::kDouble).view({1, 1, 4}).expand({1, 3, 4});
  const at::Tensor turned = rotate(head, table)[0][2];  // position 2: by 2 and 2 / 100
  EXPECT_NEAR(turned[0].item<double>(), 1 * std::cos(2.0) - 3 * std::sin(2.0), 1e-14);
  EXPECT_NEAR(turned[2].item<double>(), 3 * std::cos(2.0) + 1 * std::sin(2.0), 1e-14);
  EXPECT_NEAR(turned[1].item<double>(), 2 * std::cos(0.02) - 4 * std::sin(0.02), 1e-14);
  EXPECT_NEAR(turned[3].item<double>(), 4 * std::cos(0.02) + 2 * std::sin(0.02), 1e-14);
}

TEST(RotaryPositionsTest, IsTheRotationOfEachHeadAndItsGradient) {
  at::manual_seed(4);
  const RotaryTable table = rotary_table(rotated(6), 9, at::kDouble);
  const auto plain = [&](const Arguments& a) {
    const auto halves = a[0].view({2, 9, 3, 6}).chunk(2, 3);
    const at::Tensor c = table.cosine.unsqueeze(1);
    const at::Tensor s = table.sine.unsqueeze(1);
    return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, 3).flatten(2);
  };
  expect_same([&](const Arguments& a) { return rotate(a[0], table); }, plain, {random_doubles({2, 9, 18})});
}

TEST(RotaryPositionsTest, ScoresDependOnTheDistanceAlone) {
  at::manual_seed(5);
  const RotaryTable table = rotary_table(rotated(8), 12, at::kDouble);
  const at::Tensor query = rotate(random_doubles({1, 1, 8}).expand({1, 12, 8}), table)[0];
  const at::Tensor key = rotate(random_doubles({1, 1, 8}).expand({1, 12, 8}), table)[0];
  const at::Tensor scores = query.matmul(key.t());
  for (std::int64_t i = 3; i < 12; ++i)
    EXPECT_NEAR(scores[i][i - 3].item<double>(), scores[3][0].item<double>(), 1e-13) << i;
}

// The published rule of Llama 3.1, by wavelength.
TEST(RotaryPositionsTest, Llama3LowersLowFrequencies) {
  const ModelConfig config = find_model("llama-3.2-1b");
  const at::Tensor frequencies = rotary_frequencies(config, at::kDouble);
  ASSERT_EQ(frequencies.size(0), 32);
  int kept = 0;
  int divided = 0;
  for (std::int64_t j = 0; j < 32; ++j) {
    const double plain = std::pow(5e5, -2.0 * static_cast<double>(j) / 64);
    const double wave_length = 2 * std::numbers::pi / plain;
    double expected = 0;
    if (wave_length < 8192.0 / 4) {
      expected = plain;
      ++kept;
    } else if (wave_length > 8192) {
      expected = plain / 32;
      ++divided;
    } else {
      const double smooth = (8192 / wave_length - 1) / (4 - 1);
      expected = (1 - smooth) * plain / 32 + smooth * plain;
    }
    EXPECT_NEAR(frequencies[j].item<double>(), expected, 1e-15) << j;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_LT(kept + divided, 32) << "some in between";
}

TEST(RotaryPositionsTest, LinearScalingStretchesPositions) {
  ModelConfig config = rotated(8);
  const RotaryTable plain = rotary_table(config, 5, at::kDouble);
  config.rope_scaling = {.type = RopeScalingType::Linear, .factor = 4};
  const RotaryTable stretched = rotary_table(config, 17, at::kDouble);
  EXPECT_TRUE(at::allclose(stretched.cosine[16], plain.cosine[4], 0, 1e-14));
  EXPECT_TRUE(at::allclose(stretched.sine[8], plain.sine[2], 0, 1e-14));
}

// Fused without dropout, in single operations with it.
TEST(GroupedAttentionTest, EqualsAttentionWithRepeatedKeysAndValues) {
  at::manual_seed(6);
  constexpr std::int64_t kHeads = 6;
  constexpr std::int64_t kHeadSize = 5;
  for (const std::int64_t shared : {1, 2, 3}) {
    for (const double probability : {0.0, 0.3}) {
      for (const std::int64_t sequences : {1, 2}) {
        const Dropout masks = {.probability = probability, .seed = 3};
        const auto repeated = [&](const at::Tensor& x) {
          return x.unflatten(2, {shared, kHeadSize}).repeat_interleave(kHeads / shared, 2).flatten(2);
        };
        expect_same(
            [&](const Arguments& a) {
              return causal_attention({a[0], a[1], a[2]}, kHeads, masks);
            },
            [&](const Arguments& a) {
              return causal_attention({a[0], repeated(a[1]), repeated(a[2])}, kHeads, masks);
            },
            {random_doubles({sequences, 7, kHeads * kHeadSize}), random_doubles({sequences, 7, shared * kHeadSize}),
             random_doubles({sequences, 7, shared * kHeadSize})});
      }
    }
  }
}

}  // namespace
}  // namespace chimera
