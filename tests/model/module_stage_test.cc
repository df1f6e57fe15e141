#include "model/module_stage.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "model/dropout.h"
#include "support/message_of.h"

namespace chimera {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayerFactory linear_layer(std::int64_t inputs, std::int64_t outputs) {
  return [=] { return nn::Linear(inputs, outputs); };
}

/// Stage 1 of a model; layers 0 and 1 are on another stage.
std::unique_ptr<ModuleStage> stage_of(std::vector<LayerFactory> layers, const ModuleUse& use = {},
                                      const Loss* loss = nullptr) {
  layers.insert(layers.begin(), 2, linear_layer(1, 1));
  const ModuleStageSpec spec{StageId(1), 2, static_cast<std::int64_t>(layers.size()), loss};
  return make_module_stage(spec, layers, use, /*seed=*/1);
}

/// The one-line error of `action`.
template <class Action>
std::string refusal(const Action& action) {
  const std::string message = testing::message_of(action, "not refused");
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

std::string refusal_of_layer(const LayerFactory& layer, const ModuleUse& use) {
  return refusal([&] { static_cast<void>(stage_of({linear_layer(2, 2), layer}, use)); });
}

std::string refusal_of_input(ModuleStage& stage, const at::Tensor& input, const MicroBatch& batch = {}) {
  return refusal([&] { static_cast<void>(stage.forward(input, batch)); });
}

TEST(ModuleStageTest, ParametersHaveGlobalNames) {
  const auto stage = stage_of({linear_layer(3, 4), [] { return nn::Sequential(nn::Tanh(), nn::Linear(4, 2)); }});
  std::vector<std::string> names;
  for (const Parameter& parameter : stage->parameters()) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("2.weight", "2.bias", "3.1.weight", "3.1.bias"));
  EXPECT_EQ(stage->name(), "stage 1 (layers 2 to 3)");
}

struct Doubler : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return 2 * x; }
};

TEST(ModuleStageTest, EveryKindOfLayerRuns) {
  const auto stage =
      stage_of({linear_layer(3, 3), [] { return nn::AnyModule(nn::Linear(3, 3)); },
                [] { return nn::Sequential(nn::Tanh(), nn::Linear(3, 3)); }, [] { return std::make_shared<Doubler>(); },
                [] { return [](const at::Tensor& x) { return x.flatten(1); }; }});
  EXPECT_EQ(stage->forward(at::ones({5, 3, 3}), {}).sizes(), at::IntArrayRef({5, 9}));
}

TEST(ModuleStageTest, InitialValuesDependOnSeedAndLayerAlone) {
  const auto value = [](std::vector<LayerFactory> before, std::uint64_t seed) {
    before.insert(before.end(), linear_layer(8, 8));
    const auto end = static_cast<std::int64_t>(before.size());
    const ModuleStageSpec whole{StageId(0), 0, end, nullptr};
    const ModuleStageSpec last{StageId(0), end - 1, end, nullptr};
    const auto together = make_module_stage(whole, before, {}, seed);
    const auto alone = make_module_stage(last, before, {}, seed);
    EXPECT_TRUE(at::equal(together->parameters().back().value, alone->parameters().back().value));
    return alone->parameters().front().value;
  };
  EXPECT_FALSE(at::equal(value({linear_layer(8, 8)}, 1), value({linear_layer(8, 8)}, 2)));
  EXPECT_TRUE(at::equal(value({linear_layer(8, 8)}, 1), value({linear_layer(9, 3)}, 1)));
}

TEST(ModuleStageTest, NamesTheStageThatWritesToItsInput) {
  const LayerFactory in_place = [] { return nn::ReLU(nn::ReLUOptions(/*inplace=*/true)); };
  const auto stage = stage_of({in_place, linear_layer(2, 2)});
  const auto view_first = stage_of({[] { return nn::Flatten(); }, in_place, linear_layer(4, 4)});
  const auto inside = stage_of({linear_layer(2, 2), in_place});
  const at::NoGradGuard no_graph;
  EXPECT_THAT(refusal_of_input(*stage, at::ones({3, 2})),
              AllOf(HasSubstr("stage 1 (layers 2 to 3)"), HasSubstr("writes to its input")));
  EXPECT_THAT(refusal_of_input(*view_first, at::ones({3, 2, 2})), HasSubstr("writes to its input"));
  EXPECT_EQ(refusal_of_input(*inside, at::ones({3, 2})), "not refused");
}

TEST(ModuleStageTest, NamesTheStageThatWritesToTheModelsInput) {
  const auto stage = stage_of({[] { return nn::ReLU(nn::ReLUOptions(true)); }, linear_layer(2, 2)});
  MicroBatch batch;
  batch.tokens = at::ones({3, 2});
  EXPECT_THAT(refusal_of_input(*stage, at::Tensor(), batch), HasSubstr("writes to its input"));
}

TEST(ModuleStageTest, NamesTheLayerThatFails) {
  const auto stage = stage_of({linear_layer(3, 4), linear_layer(5, 2)});
  EXPECT_THAT(refusal_of_input(*stage, at::ones({6, 3})),
              AllOf(HasSubstr("stage 1, layer 3 (torch::nn::LinearImpl)"), HasSubstr("[6, 4] of Float"),
                    HasSubstr("cannot be multiplied")));
}

TEST(ModuleStageTest, RefusesAnotherOutputThanExpected) {
  const auto stage = stage_of({linear_layer(3, 4)});
  EXPECT_EQ(stage->first_output(at::ones({6, 3}), {}).sizes(), at::IntArrayRef({6, 4}));
  EXPECT_EQ(refusal_of_input(*stage, at::ones({6, 3})), "not refused");
  EXPECT_THAT(refusal_of_input(*stage, at::ones({5, 3})),
              HasSubstr("gives [5, 4] of Float, but at first it gave [6, 4]"));
}

TEST(ModuleStageTest, FindingTheShapeDoesNotChangeBuffers) {
  nn::BatchNorm1d norm(2);
  const auto stage = stage_of({[&] { return norm; }});
  EXPECT_EQ(stage->first_output(at::randn({8, 2}), {}).sizes(), (std::vector<std::int64_t>{8, 2}));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
  EXPECT_TRUE(at::equal(norm->running_mean, at::zeros({2})));
}

TEST(ModuleStageTest, RejectsBuffersWithReplicasOrRecomputation) {
  const LayerFactory norm = [] { return nn::Sequential(nn::Tanh(), nn::BatchNorm1d(2)); };
  EXPECT_EQ(refusal_of_layer(norm, {}), "not refused");
  EXPECT_THAT(refusal_of_layer(norm, {.replicated = true}),
              AllOf(HasSubstr("layer 3: torch::nn::BatchNorm1dImpl (1) has the buffer 'running_mean'"),
                    HasSubstr("several workers train copies of it")));
  EXPECT_THAT(refusal_of_layer(norm, {.recomputed = true}), HasSubstr("its forward runs again"));
}

TEST(ModuleStageTest, RefusesModulesThatDrawFromTorchsGenerator) {
  const std::vector<LayerFactory> layers = {
      [] { return nn::Dropout(0.1); },   [] { return nn::Sequential(nn::Dropout2d()); },
      [] { return nn::AlphaDropout(); }, [] { return nn::FeatureAlphaDropout(); },
      [] { return nn::RReLU(); },
  };
  for (const LayerFactory& layer : layers) {
    EXPECT_EQ(refusal_of_layer(layer, {}), "not refused");
    EXPECT_THAT(refusal_of_layer(layer, {.replicated = true}), HasSubstr("use chimera::KeyedDropout"));
    EXPECT_THAT(refusal_of_layer(layer, {.recomputed = true}), HasSubstr("use chimera::KeyedDropout"));
  }
  EXPECT_EQ(refusal_of_layer([] { return KeyedDropout(0.1); }, {true, true}), "not refused");
}

struct Recurrent : nn::Module {
  explicit Recurrent(double dropout) {
    gru = register_module("gru", nn::GRU(nn::GRUOptions(2, 2).num_layers(2).dropout(dropout)));
  }
  at::Tensor forward(const at::Tensor& x) { return std::get<0>(gru->forward(x)); }
  nn::GRU gru{nullptr};
};

TEST(ModuleStageTest, DetectsDropoutInRecurrentModules) {
  const auto layer = [](double dropout) { return [=] { return std::make_shared<Recurrent>(dropout); }; };
  EXPECT_EQ(refusal_of_layer(layer(0), {.recomputed = true}), "not refused");
  EXPECT_THAT(refusal_of_layer(layer(0.5), {.recomputed = true}), HasSubstr("torch::nn::GRUImpl (gru)"));
}

TEST(ModuleStageTest, AStageWithoutTrainedParametersHasOneWithoutUse) {
  const auto stage = stage_of({[] { return nn::Tanh(); }});
  ASSERT_EQ(stage->parameters().size(), 1U);
  EXPECT_EQ(stage->parameters().front().name, "2.untrained");
  EXPECT_TRUE(stage->values().empty());
}

TEST(ModuleStageTest, RefusesModulesInUse) {
  nn::Linear one(2, 2);
  const auto first = stage_of({[&] { return one; }});
  EXPECT_THAT(refusal([&] { static_cast<void>(stage_of({[&] { return one; }})); }),
              HasSubstr("parameter 2.weight is in use elsewhere; a factory must make a new module"));
}

TEST(ModuleStageTest, LossIsTheSumOverTheStepsCount) {
  Loss loss;
  loss.sum = [](const at::Tensor& output, const at::Tensor& target) {
    return LossSum{(output - target).square().sum(), target.numel()};
  };
  const auto stage = stage_of({linear_layer(2, 2)}, {}, &loss);
  MicroBatch batch;
  batch.targets = at::zeros({4, 2});
  const at::Tensor sum = stage->forward(at::ones({4, 2}), batch);
  batch.token_loss_scale = 0.25;
  EXPECT_TRUE(at::equal(stage->forward(at::ones({4, 2}), batch), sum / 4));
  loss.count = [](const at::Tensor& target) { return target.size(0); };
  EXPECT_THAT(refusal_of_input(*stage, at::ones({4, 2}), batch),
              HasSubstr("the loss counted 8 elements, but Loss::count returned 4"));
}

/// Output of two KeyedDropouts in layer `layer` for ones and sample `first`.
at::Tensor dropped(std::int64_t layer, std::int64_t first) {
  KeyedDropout one(0.5);
  KeyedDropout two(0.5);
  const DropoutScope scope({.seed = 3, .step = 1, .first_sample = first}, layer);
  return at::stack({one(at::ones({2, 50})), two(at::ones({2, 50}))});
}

TEST(KeyedDropoutModuleTest, MasksDependOnLayerModuleAndSample) {
  const at::Tensor masks = dropped(3, 6);
  EXPECT_TRUE(at::equal(masks, dropped(3, 6))) << "as when a forward is recomputed";
  EXPECT_FALSE(at::equal(masks, dropped(4, 6)));
  EXPECT_FALSE(at::equal(masks[0], masks[1])) << "two modules of one layer";
  EXPECT_TRUE(at::equal(masks.select(1, 1), dropped(3, 7).select(1, 0))) << "sample 7, wherever it stands";
  EXPECT_EQ(masks.max().item<double>(), 2);
}

TEST(KeyedDropoutModuleTest, RunsInStagesOnlyOrInEvaluation) {
  KeyedDropout layer(0.5);
  EXPECT_THROW(layer(at::ones({2, 2})), Error);
  layer->eval();
  EXPECT_TRUE(at::equal(layer(at::ones({2, 2})), at::ones({2, 2})));
  EXPECT_THROW(KeyedDropout(1.0), ConfigError);
}

}  // namespace
}  // namespace chimera
