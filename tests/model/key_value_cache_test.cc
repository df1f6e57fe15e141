// Slices of a micro-batch give the loss and gradients of the whole micro-batch.

#include "model/key_value_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <vector>

#include "model/examples.h"
#include "model/layers.h"
#include "model/linear.h"
#include "model/make_stage.h"

namespace chimera {
namespace {

constexpr double kTolerance = 1e-12;  // of float64, for other orders of summation

using Bounds = std::vector<std::int64_t>;
using Stages = std::vector<std::unique_ptr<Stage>>;

struct Passes {
  bool splits = false;      // I of all slices, then W
  bool recomputes = false;  // forwards run again before their backwards
};

/// Forward and backward of one slice on one stage, as the executor runs them.
struct SlicePass {
  SlicePass(Stage& at, const at::Tensor& hidden, MicroBatch slice)
      : stage(at), batch(std::move(slice)), queue(c10::make_intrusive<WeightGradients>()) {
    if (hidden.defined()) input = hidden.detach().requires_grad_();
  }

  void forward(bool keeps_graph) {
    const at::AutoGradMode mode(keeps_graph);
    const WeightGradients::Scope scope(queue);
    output = stage.forward(input, batch);
  }

  at::Tensor backward(const at::Tensor& gradient, const Passes& passes) {
    if (passes.recomputes) forward(/*keeps_graph=*/true);
    if (passes.splits) queue->defer();
    torch::autograd::backward({output}, {gradient});
    output.reset();
    return input.defined() ? input.grad() : at::Tensor();
  }

  Stage& stage;
  MicroBatch batch;
  WeightGradients::Pointer queue;
  at::Tensor input = {};
  at::Tensor output = {};
};

/// Runs the slices forward in order and backward in reverse order; returns the loss.
double run_slices(const Stages& stages, const MicroBatch& batch, const Bounds& bounds, const Passes& passes) {
  std::vector<std::shared_ptr<KeyValueCache>> key_value_cache;  // [stage]
  for (std::size_t s = 0; s < stages.size(); ++s)
    key_value_cache.push_back(std::make_shared<KeyValueCache>(bounds.back()));
  std::vector<std::vector<SlicePass>> slices;  // [slice][stage]
  double loss = 0;
  for (std::size_t j = 0; j + 1 < bounds.size(); ++j) {
    auto& slice = slices.emplace_back();
    at::Tensor hidden;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      slice.emplace_back(*stages[s], hidden, slice_of(batch, bounds[j], bounds[j + 1], key_value_cache[s]));
      slice.back().forward(/*keeps_graph=*/!passes.recomputes);
      hidden = slice.back().output;
    }
    loss += hidden.item<double>();
  }
  for (std::size_t j = slices.size(); j-- > 0;) {
    at::Tensor gradient;  // the gradient of the loss is 1
    for (std::size_t s = stages.size(); s-- > 0;) gradient = slices[j][s].backward(gradient, passes);
  }
  for (auto& slice : slices) {
    for (SlicePass& pass : slice) pass.queue->run();
  }
  return loss;
}

Stages make_stages(Family family, std::int64_t count, RecomputeLevel level = RecomputeLevel::None) {
  const ModelConfig config = small_model(family);
  Stages stages;
  for (StageLayers layers : even_partition(config.layers, count)) {
    layers.levels = BlockLevels::at(level, layers.blocks());
    stages.push_back(rough_stage(config, layers));
  }
  return stages;
}

void expect_equal_gradients(const Stages& stages, const Stages& expected) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const at::Tensor& all = expected[s]->gradients();
    const double scale = all.abs().max().item<double>();
    for (std::size_t p = 0; p < stages[s]->parameters().size(); ++p) {
      const at::Tensor difference = stages[s]->parameters()[p].value.grad() - expected[s]->parameters()[p].value.grad();
      EXPECT_LT(difference.abs().max().item<double>(), kTolerance * scale) << stages[s]->parameters()[p].name;
    }
  }
}

void expect_whole_results(Family family, const MicroBatch& batch, const Bounds& bounds, RecomputeLevel level) {
  const Stages whole = make_stages(family, 2);
  const double loss = run_stages(whole, batch);
  for (const Passes& passes : {Passes{}, Passes{.splits = true}, Passes{.recomputes = true}, Passes{true, true}}) {
    const Stages stages = make_stages(family, 2, level);
    EXPECT_NEAR(run_slices(stages, batch, bounds, passes), loss, kTolerance * loss);
    expect_equal_gradients(stages, whole);
  }
}

struct SlicedModel {
  Family family;
  Bounds bounds;  // of 6 tokens
};

class CarriedKeyValuesTest : public ::testing::TestWithParam<SlicedModel> {};
INSTANTIATE_TEST_SUITE_P(
    Slices, CarriedKeyValuesTest,
    ::testing::Values(SlicedModel{Family::Gpt2, {0, 2, 6}}, SlicedModel{Family::Gpt2, {0, 3, 4, 6}},
                      SlicedModel{Family::Gpt2, {0, 1, 2, 3, 4, 5, 6}}, SlicedModel{Family::Llama, {0, 4, 6}},
                      SlicedModel{Family::Llama, {0, 2, 3, 6}}, SlicedModel{Family::Llama, {0, 1, 2, 3, 4, 5, 6}}));

TEST_P(CarriedKeyValuesTest, LossAndGradientsAreThoseOfTheWholeMicroBatch) {
  const auto& [family, bounds] = GetParam();
  for (const bool splits_documents : {false, true}) {
    for (const double dropout : {0.0, 0.3}) {
      for (const RecomputeLevel level :
           {RecomputeLevel::None, RecomputeLevel::Cheap, RecomputeLevel::Attention, RecomputeLevel::Full}) {
        SCOPED_TRACE(::testing::Message() << "documents split " << splits_documents << ", dropout " << dropout
                                          << ", recomputed " << to_text(level));
        MicroBatch batch = small_batch(family);
        if (splits_documents)
          batch.documents = at::tensor({0, 0, 1, 1, 1, 2, 0, 1, 1, 2, 2, 2}, at::kLong).view({2, 6});
        batch.dropout = {.probability = dropout, .seed = 3, .step = 1, .first_sample = 4};
        expect_whole_results(family, batch, bounds, level);
      }
    }
  }
}

TEST_P(CarriedKeyValuesTest, ForwardsWithoutAGraphGiveTheLoss) {
  const at::NoGradGuard no_graph;
  const auto& [family, bounds] = GetParam();
  const Stages stages = make_stages(family, 1);
  const MicroBatch batch = small_batch(family);
  const auto key_value_cache = std::make_shared<KeyValueCache>(bounds.back());
  double loss = 0;
  for (std::size_t j = 0; j + 1 < bounds.size(); ++j)
    loss += stages[0]->forward({}, slice_of(batch, bounds[j], bounds[j + 1], key_value_cache)).item<double>();
  const double expected = stages[0]->forward({}, batch).item<double>();
  EXPECT_NEAR(loss, expected, kTolerance * expected);
}

/// float32 gradients of keys are added in float32 even if the model computes in bfloat16.
TEST(SliceGradientsTest, AreAddedInAtLeastFloat32) {
  const auto key_value_cache = std::make_shared<KeyValueCache>(3);
  std::vector<at::Tensor> keys;
  std::vector<QueryKeyValue> seen;
  for (std::int64_t token = 0; token < 3; ++token) {
    keys.push_back(at::ones({1, 1, 2}, at::kBFloat16).requires_grad_());
    seen.push_back(append_to_cache(key_value_cache, 0, token, {keys.back(), keys.back(), keys.back().detach()}));
    EXPECT_EQ(seen.back().key.sizes(), at::IntArrayRef({1, token + 1, 2}));
  }
  // The gradients of token 0's key are 256, 1 and 1: bfloat16 would round 256 + 1 to 256 twice.
  for (std::int64_t token = 2; token >= 0; --token) {
    const at::Tensor gradient = at::zeros({1, token + 1, 2}, at::kBFloat16);
    gradient.select(1, 0).fill_(token == 2 ? 256 : 1);
    torch::autograd::backward({seen[static_cast<std::size_t>(token)].key}, {gradient});
  }
  EXPECT_EQ(keys[0].grad().max().item<double>(), 258);
  EXPECT_EQ(keys[1].grad().abs().max().item<double>(), 0);
}

TEST(SlicedDropoutTest, MasksArePartsOfTheWholeMask) {
  const Dropout whole{.probability = 0.4, .seed = 1, .step = 2, .first_sample = 8, .layer = 3};
  const std::int64_t length = 70;
  const at::Tensor hidden = at::ones({3, length, 30});
  const at::Tensor probabilities = at::ones({3, 2, length, length});
  const at::Tensor hidden_mask = dropout(hidden, whole, DropoutSite::AttentionOutput);
  const at::Tensor probability_mask = dropout(probabilities, whole, DropoutSite::AttentionProbabilities);
  const Bounds bounds = {0, 1, 33, 70};
  for (std::size_t j = 0; j + 1 < bounds.size(); ++j) {
    Dropout slice = whole;
    slice.first_token = bounds[j];
    slice.sequence = length;
    const auto rows = [&](const at::Tensor& x, std::int64_t dim) {
      return x.narrow(dim, bounds[j], bounds[j + 1] - bounds[j]);
    };
    EXPECT_TRUE(at::equal(dropout(rows(hidden, 1), slice, DropoutSite::AttentionOutput), rows(hidden_mask, 1)));
    EXPECT_TRUE(at::equal(
        dropout(rows(probabilities, 2).narrow(3, 0, bounds[j + 1]), slice, DropoutSite::AttentionProbabilities),
        rows(probability_mask, 2).narrow(3, 0, bounds[j + 1])));
  }
}

}  // namespace
}  // namespace chimera
