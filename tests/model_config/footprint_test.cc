#include "model_config/footprint.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

/// b sequences of L tokens in float32.
Workload workload(std::int64_t b, std::int64_t length) { return {.micro_batch_size = b, .sequence = length}; }

double head_flops(const ModelConfig& config, const Workload& on) {
  return layer_footprint(config, LayerKind::Head, on).forward_flops;
}

// Four products with H x H and two with H x 4H; then scores and values, of every pair of tokens.
TEST(FootprintTest, ABlocksFlopsAreThoseOfTheFormula) {
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

TEST(FootprintTest, HeadsFlopsAreThoseOfTheirProducts) {
  const ModelConfig gpt2 = find_model("gpt2");
  EXPECT_DOUBLE_EQ(head_flops(gpt2, workload(2, 1024)), 2.0 * 2 * 1024 * 768 * 50'257);
  const ModelConfig bert = find_model("bert-base");
  const double tokens = 2 * 2.0 * 128 * (768.0 * 30'522 + 768 * 768);  // decoder, transform
  const double sentences = 2 * 2.0 * (768 * 768 + 768 * 2);            // pooler, order of sentences
  EXPECT_DOUBLE_EQ(head_flops(bert, workload(2, 128)), tokens + sentences);
  EXPECT_EQ(layer_footprint(gpt2, LayerKind::Embedding, workload(2, 1024)).forward_flops, 0);
}

// float32, no dropout: 8 tensors of [b, L, H] and 2 of [b, L, 4H], then means, deviations and a number for each head.
TEST(FootprintTest, ABlockKeepsThisMuch) {
  const ModelConfig config = find_model("gpt2");
  const double tokens = 8 * 1024;
  const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload(8, 1024));
  EXPECT_EQ(block.activations, 4 * tokens * (16 * 768 + 2 * 2 + 12));
  EXPECT_EQ(block.deferred, 4 * tokens * 16 * 768) << "inputs of four linear layers and gradients of their outputs";
}

TEST(FootprintTest, HalfAsWideElementsTakeHalfTheBytesButForWhatIsComputedWider) {
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

TEST(FootprintTest, StagesAddUpToTheModelButForTheMessagesBetweenThem) {
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
  try {
    static_cast<void>(layer_footprint(find_model("gpt2"), LayerKind::Block, on));
    ADD_FAILURE() << "accepted; expected: " << why;
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), why);
  }
}

TEST(FootprintTest, RefusesWorkloadsThatNoModelHas) {
  expect_refusal(workload(0, 8), "the micro-batch size must be at least 1, not 0");
  expect_refusal(workload(1, -1), "the sequence length must be at least 1, not -1");
  expect_refusal(workload(1, 1025), "model 'gpt2': a sequence of 1025 tokens is longer than its 1024 positions");
}

}  // namespace
}  // namespace chimera
