#include "model_config/footprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model_config/config.h"
#include "model_config/parameters.h"
#include "support/message_of.h"

namespace chimera {
namespace {

/// b sequences of L tokens in float32.
Workload workload(std::int64_t b, std::int64_t length) { return {.micro_batch_size = b, .sequence = length}; }

// Four products with H x H and two with H x 4H, plus scores and values of every pair of tokens.
TEST(FootprintTest, FlopsOfABlockFollowTheFormula) {
  for (const char* name : {"gpt2-64", "bert-48"}) {
    const ModelConfig config = find_model(name);
    const auto H = static_cast<double>(config.hidden);
    constexpr double kB = 4;
    constexpr double kL = 512;
    const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload(4, 512));
    EXPECT_DOUBLE_EQ(block.forward_flops, 24 * kB * kL * H * H * (1 + kL / (6 * H))) << name;
    EXPECT_DOUBLE_EQ(block.weight_gradient_flops, 24 * kB * kL * H * H) << name;
    EXPECT_DOUBLE_EQ(block.input_gradient_flops + block.weight_gradient_flops, 2 * block.forward_flops) << name;
  }
}

// Two FLOPs for each weight of a matrix and each token, plus scores and values of every pair of tokens.
TEST(FootprintTest, FlopsOfLlamaFollowItsMatrices) {
  for (const char* name : {"llama-3.2-1b", "qwen3-0.6b", "llama-mini"}) {
    const ModelConfig config = find_model(name);
    double weights = 0;
    for (const ParameterSpec& spec : block_parameters(config, 0)) {
      if (spec.shape.size() == 2) weights += static_cast<double>(spec.count());
    }
    constexpr double kTokens = 3 * 96;
    const double pairs = 4 * kTokens * 96 * static_cast<double>(config.heads * head_size_of(config));
    const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload(3, 96));
    EXPECT_DOUBLE_EQ(block.forward_flops, 2 * kTokens * weights + pairs) << name;
    EXPECT_DOUBLE_EQ(block.input_gradient_flops, 2 * kTokens * weights + 2 * pairs) << name;
    EXPECT_DOUBLE_EQ(block.weight_gradient_flops, 2 * kTokens * weights) << name;
  }
}

// F scores every token and computes the gradient through the same matrix. W scores all but the last of four chunks
// again. A micro-batch of one chunk recomputes nothing.
TEST(FootprintTest, FlopsOfTheHeadFollowItsProducts) {
  const ModelConfig gpt2 = find_model("gpt2");
  const double product = 2.0 * 1024 * 768 * 50'257;
  const LayerFootprint head = layer_footprint(gpt2, LayerKind::Head, workload(1, 1024));
  EXPECT_DOUBLE_EQ(head.forward_flops, 2 * product);
  EXPECT_DOUBLE_EQ(head.input_gradient_flops, 0);
  EXPECT_DOUBLE_EQ(head.weight_gradient_flops, 1.75 * product);
  EXPECT_DOUBLE_EQ(layer_footprint(gpt2, LayerKind::Head, workload(2, 128)).weight_gradient_flops, product / 4);
  EXPECT_EQ(layer_footprint(gpt2, LayerKind::Embedding, workload(2, 1024)).forward_flops, 0);
}

// Per token and block, products with weights take 72 H^2 FLOPs, and scores and values of every pair 12 L H.
TEST(FootprintTest, AttentionsShareGrowsWithTheSequence) {
  const ModelConfig config = find_model("gpt2-64");
  const auto H = static_cast<double>(config.hidden);
  double before = 0;
  for (const std::int64_t length : {64, 256, 1024}) {
    const auto L = static_cast<double>(length);
    const LayerFootprint head = layer_footprint(config, LayerKind::Head, workload(1, length));
    const double of_head = (head.forward_flops + head.input_gradient_flops + head.weight_gradient_flops) / L;
    const double share = attention_share(config, length);
    EXPECT_NEAR(share, 64 * 12 * L * H / (64 * (72 * H * H + 12 * L * H) + of_head), 1e-12);
    EXPECT_GT(share, before);
    before = share;
  }
}

TEST(FootprintTest, BalancedSlicesTakeEqualTimes) {
  using ::testing::ElementsAre;
  EXPECT_THAT(balanced_slices(3, 16, 0), ElementsAre(0, 5, 11, 16));
  EXPECT_THAT(balanced_slices(16, 16, 0.5), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  EXPECT_THAT(balanced_slices(4, 1024, 0), ElementsAre(0, 256, 512, 768, 1024));
  // x^2 = j / 4: 512, 724.1 and 886.8 tokens
  EXPECT_THAT(balanced_slices(4, 1024, 1), ElementsAre(0, 512, 720, 880, 1024));
  EXPECT_THAT(as_fractions({0, 512, 720, 1024}), ElementsAre(0, 0.5, 0.703125, 1));
}

// 19 of 128 tokens are masked: 15 % of the 125 text tokens.
TEST(FootprintTest, BertsHeadScoresOnlyMaskedTokens) {
  const LayerFootprint head = layer_footprint(find_model("bert-base"), LayerKind::Head, workload(2, 128));
  const double decoder = 2 * 2.0 * 19 * 768 * 30'522;
  const double others = 2 * 2.0 * 19 * 768 * 768 + 2 * 2.0 * (768 * 768 + 768 * 2);  // transform; pooler, sentences
  EXPECT_DOUBLE_EQ(head.forward_flops, 2 * decoder + others);
  EXPECT_DOUBLE_EQ(head.input_gradient_flops, others);
  EXPECT_DOUBLE_EQ(head.weight_gradient_flops, decoder + others);
}

// Hidden states, their gradient, the norm's statistics, targets, and the gradient of one chunk's logits.
TEST(FootprintTest, AHeadKeepsTheLogitsOfOneChunk) {
  const LayerFootprint head = layer_footprint(find_model("gpt2"), LayerKind::Head, workload(1, 1024));
  EXPECT_EQ(head.activations, 4 * 1024 * (2 * 768 + 2) + 8 * 1024 + 4 * 256 * 50'257);
  EXPECT_EQ(head.deferred, 4 * 1024 * 768 + 8 * 1024 + 4 * 256 * 50'257);
}

// float32, no dropout: 8 tensors of [b, L, H] and 2 of [b, L, 4H], then means, deviations and one number per head.
TEST(FootprintTest, ABlockKeepsItsActivations) {
  const ModelConfig config = find_model("gpt2");
  const double tokens = 8 * 1024;
  const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload(8, 1024));
  EXPECT_EQ(block.activations, 4 * tokens * (16 * 768 + 2 * 2 + 12));
  EXPECT_EQ(block.deferred, 4 * tokens * 16 * 768) << "inputs of four linear layers and gradients of their outputs";
}

// The sum, the second norm's result, the output, 2 of [b, L, 4H], mean and deviation of one norm.
TEST(FootprintTest, ABlockWithRecomputedAttentionKeepsItsFeedForwardSubLayer) {
  const ModelConfig config = find_model("gpt2");
  constexpr double kTokens = 8 * 1024;
  constexpr double kH = 768;
  Workload dropping = workload(8, 1024);
  dropping.dropout = true;
  const LayerFootprint whole = layer_footprint(config, LayerKind::Block, workload(8, 1024));
  const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload(8, 1024), RecomputeLevel::Attention);
  EXPECT_EQ(block.activations, 4 * kTokens * (11 * kH + 2));
  EXPECT_EQ(block.deferred, whole.deferred);
  EXPECT_DOUBLE_EQ(block.forward_flops, whole.forward_flops);
  EXPECT_DOUBLE_EQ(block.input_gradient_flops - whole.input_gradient_flops,
                   8 * kTokens * kH * kH + 4 * kTokens * 1024 * kH);
  EXPECT_DOUBLE_EQ(block.weight_gradient_flops, whole.weight_gradient_flops);
  EXPECT_EQ(layer_footprint(config, LayerKind::Block, dropping, RecomputeLevel::Attention).activations,
            block.activations);
  const LayerFootprint full = layer_footprint(config, LayerKind::Block, dropping, RecomputeLevel::Full);
  EXPECT_EQ(full.activations, 4 * kTokens * kH) << "its output";
  EXPECT_DOUBLE_EQ(full.input_gradient_flops - whole.input_gradient_flops, whole.forward_flops);
}

// float32, no dropout: 4 tensors of [b, L, H], 2 of queries' width, 2 of keys' width, 3 of [b, L, F], then the norms'
// scales and one number per head.
TEST(FootprintTest, ABlockOfLlamaKeepsItsActivations) {
  ModelConfig config = find_model("llama-3.2-1b");
  const double tokens = 2 * 512;
  const double kept = tokens * (4 * 2048 + 2 * 2048 + 2 * 512 + 3 * 8192 + 2 + 32);
  EXPECT_EQ(layer_footprint(config, LayerKind::Block, workload(2, 512)).activations, 4 * kept);
  EXPECT_EQ(layer_footprint(config, LayerKind::Block, workload(2, 512)).deferred,
            4 * tokens * (4 * 2048 + 2 * 2048 + 2 * 512 + 3 * 8192));
  config.query_key_norm = true;
  EXPECT_EQ(layer_footprint(config, LayerKind::Block, workload(2, 512)).activations,
            4 * (kept + tokens * (2048 + 512 + 32 + 8)));
}

TEST(FootprintTest, HalfPrecisionHalvesBytesExceptForFloat32Tensors) {
  const ModelConfig config = find_model("gpt2");
  Workload narrow = workload(1, 128);
  narrow.compute_bytes = 2;
  EXPECT_EQ(layer_footprint(config, LayerKind::Block, narrow).deferred,
            layer_footprint(config, LayerKind::Block, workload(1, 128)).deferred / 2);
  const StageLayers stage = {4, 8, false, false};
  const StageMemory memory = stage_footprint(config, stage, narrow).memory;
  const auto parameters = static_cast<double>(parameter_count(config, stage));
  EXPECT_EQ(memory.weights, (4 + 2) * parameters) << "with the copies that layers compute with";
  EXPECT_EQ(memory.gradients, 4 * parameters);
  EXPECT_EQ(memory.optimizer, 8 * parameters);
}

TEST(FootprintTest, StagesAddUpToTheModelExceptForMessages) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = with_overrides(find_model(name), {.tied = false});
    const Workload on = workload(2, 64);
    const StageFootprint whole = stage_footprint(config, {0, config.layers, true, true}, on);
    StageFootprint sum;
    double deferred = 0;
    for (const StageLayers& stage : even_partition(config.layers, 3)) {
      const StageFootprint part = stage_footprint(config, stage, on);
      sum.parameters += part.parameters;
      sum.forward_flops += part.forward_flops;
      sum.input_gradient_flops += part.input_gradient_flops;
      sum.weight_gradient_flops += part.weight_gradient_flops;
      sum.memory.activations += part.memory.activations - part.memory.boundary;
      deferred += *part.memory.deferred;
    }
    EXPECT_EQ(sum.parameters, whole.parameters) << name;
    EXPECT_DOUBLE_EQ(sum.forward_flops, whole.forward_flops) << name;
    EXPECT_DOUBLE_EQ(sum.input_gradient_flops, whole.input_gradient_flops) << name;
    EXPECT_DOUBLE_EQ(sum.weight_gradient_flops, whole.weight_gradient_flops) << name;
    EXPECT_DOUBLE_EQ(sum.memory.activations, whole.memory.activations) << name;
    EXPECT_DOUBLE_EQ(deferred, *whole.memory.deferred) << name;
  }
}

TEST(FootprintTest, ATiedMatrixWithBothUsesHasTwoSums) {
  const ModelConfig config = find_model("gpt2");
  const StageMemory memory = stage_footprint(config, {0, 12, true, true}, workload(1, 8)).memory;
  EXPECT_EQ(memory.gradients - memory.weights, 4.0 * 50'257 * 768);
}

TEST(FootprintTest, TakesNoMemoryOrTimeForHugeModels) {
  ModelConfig config = find_model("gpt2-tiny");
  config.layers = 1'000'000;
  const StageFootprint all = stage_footprint(config, {0, config.layers, true, true}, workload(1'000'000, 1024));
  EXPECT_GT(all.memory.activations, 1e17);
}

void expect_refusal(const Workload& on, const std::string& why) {
  EXPECT_EQ(testing::message_of([&] { static_cast<void>(layer_footprint(find_model("gpt2"), LayerKind::Block, on)); },
                                "accepted"),
            why);
}

TEST(FootprintTest, RefusesInvalidWorkloads) {
  expect_refusal(workload(0, 8), "the micro-batch size must be at least 1, not 0");
  expect_refusal(workload(1, -1), "the sequence length must be at least 1, not -1");
  expect_refusal(workload(1, 1025), "model 'gpt2': a sequence of 1025 tokens is longer than its 1024 positions");
}

}  // namespace
}  // namespace chimera
