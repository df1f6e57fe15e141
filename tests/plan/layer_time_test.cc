#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/layer_times.h"
#include "plan/machines.h"
#include "support/message_of.h"

namespace chimera {
namespace {

LayerTime block_time(const ModelConfig& model, const Workload& workload) {
  return layer_time(round_machine(), model, LayerKind::Block, workload);
}

LayerTime block_time(std::int64_t micro_batch_size) {
  return block_time(find_model("gpt2-mini"), {.micro_batch_size = micro_batch_size});
}

TEST(LayerTimeTest, EqualsTheMeasurement) { EXPECT_EQ(block_time(2), (LayerTime{2, 4, 2, 4, 3, 0.02})); }

TEST(LayerTimeTest, IsLinearBetweenAndBeyondMeasuredSizes) {
  EXPECT_EQ(block_time(3), (LayerTime{3, 5, 3, 6, 4, 0.02}));
  EXPECT_EQ(block_time(16), (LayerTime{16, 18, 16, 32, 17, 0.04}));
}

TEST(LayerTimeTest, EverySlicePaysTheConstantPart) {
  const LayerTime time = block_time(find_model("gpt2-mini"), {.micro_batch_size = 2, .slices = 4});
  EXPECT_EQ(time.forward, 4 * (2 + 0.5));  // half a sequence each
  EXPECT_EQ(time.input_gradient, 2);
  EXPECT_EQ(time.weight_gradient, 4);
}

TEST(LayerTimeTest, NeverFallsBelowTheSmallestSizesShare) {
  MachineProfile machine = round_machine();
  machine.layers = {round_layer(LayerKind::Block)};
  // the line through them meets 0 at a micro-batch of 3.5
  machine.layers[0].times = {{4, 1, 1, 1, 1, 0}, {8, 9, 9, 9, 9, 0}};
  EXPECT_EQ(layer_time(machine, find_model("gpt2-mini"), LayerKind::Block, {.micro_batch_size = 2}).forward, 0.5);
}

TEST(LayerTimeTest, WithOneMeasuredSizeIsProportional) {
  MachineProfile machine = round_machine();
  machine.layers[1].times = {{2, 4, 2, 4, 4, 0}};
  EXPECT_EQ(layer_time(machine, find_model("gpt2-mini"), LayerKind::Block, {.micro_batch_size = 6}).forward, 12);
}

TEST(LayerTimeTest, ScalesTheNearestLayerByItsWork) {
  const ModelConfig wide = with_overrides(find_model("gpt2-mini"), {.hidden = 448, .heads = 7});
  // Products with weights grow with the square of the width, attention's products linearly: 128 tokens, width 224.
  const double forward = (24.0 * 448 * 448 + 4.0 * 128 * 448) / (24.0 * 224 * 224 + 4.0 * 128 * 224);
  EXPECT_DOUBLE_EQ(block_time(wide, {.micro_batch_size = 2}).forward, 4 * forward);
  EXPECT_DOUBLE_EQ(block_time(wide, {.micro_batch_size = 2}).weight_gradient, 4 * 4);
}

TEST(LayerTimeTest, RecomputedAttentionTakesItsShareOfARecomputation) {
  const LayerTime kept = block_time(2);
  const ModelConfig model = find_model("gpt2-mini");
  const double attention = 8.0 * 224 + 4.0 * 128;  // per token and width: four products, scores and values
  const double share = attention / (24.0 * 224 + 4.0 * 128);
  const auto seconds = [&](RecomputeLevel level) {
    return recompute_seconds(round_machine(), model, {.micro_batch_size = 2}, level, kept.recompute);
  };
  EXPECT_DOUBLE_EQ(seconds(RecomputeLevel::Attention), share * kept.recompute);
  EXPECT_EQ(seconds(RecomputeLevel::Full), kept.recompute);
  // Two norms and GELU, each reading and writing, beside the FLOPs of the block.
  const double moved = 4 * (4.0 * 224 + 2.0 * 896);
  const double flops = 24.0 * 224 * 224 + 4.0 * 128 * 224;
  EXPECT_DOUBLE_EQ(seconds(RecomputeLevel::Cheap), kFlopsPerByteOfCpu * moved / flops * kept.recompute);
  MachineProfile known = round_machine();
  known.memory_bandwidth = 1e6;
  EXPECT_DOUBLE_EQ(recompute_seconds(known, model, {.micro_batch_size = 2}, RecomputeLevel::Cheap, kept.recompute),
                   2 * 128 * moved / 1e6);
}

TEST(LayerTimeTest, UsesTimesOfOtherSequencesWithAsManyTokens) {
  // One sequence of 256 has as many tokens as two of 128, so its products with weights are as large.
  EXPECT_DOUBLE_EQ(block_time(find_model("gpt2-mini"), {.micro_batch_size = 1, .sequence = 256}).weight_gradient, 4);
  EXPECT_GT(block_time(find_model("gpt2-mini"), {.micro_batch_size = 1, .sequence = 256}).forward, 4);
}

TEST(LayerTimeTest, AttentionMovesMoreWithLongerSequences) {
  MachineProfile machine = round_machine();
  const ModelConfig model = find_model("gpt2-mini");
  const Workload asked{.micro_batch_size = 1, .sequence = 256};
  const LayerTime flops_alone = layer_time(machine, model, LayerKind::Block, asked);
  machine.score_traffic = 1;
  machine.memory_bandwidth = static_cast<double>(model.heads) * 128 * 128 * 4;  // a quarter of a second per sequence
  const LayerTime same = layer_time(machine, model, LayerKind::Block, {.micro_batch_size = 2});
  EXPECT_DOUBLE_EQ(same.forward, 4);
  EXPECT_DOUBLE_EQ(same.input_gradient, 2);
  // For two sequences of 128, attention traffic took half a second of the forward's 4 and of the input gradient's 2.
  // One sequence of 256 takes four quarters.
  const LayerTime longer = layer_time(machine, model, LayerKind::Block, asked);
  EXPECT_DOUBLE_EQ(longer.forward, flops_alone.forward / 4 * (4 - 0.5) + 1);
  EXPECT_DOUBLE_EQ(longer.input_gradient, flops_alone.input_gradient / 2 * (2 - 0.5) + 1);
  EXPECT_DOUBLE_EQ(longer.weight_gradient, flops_alone.weight_gradient);
}

TEST(LayerTimeTest, ScalesTheEmbeddingByItsHiddenStates) {
  const ModelConfig wide = with_overrides(find_model("gpt2-mini"), {.hidden = 448, .heads = 7});
  const LayerTime time = layer_time(round_machine(), wide, LayerKind::Embedding, {.micro_batch_size = 4});
  EXPECT_DOUBLE_EQ(time.forward, 12);
}

TEST(LayerTimeTest, ScalesTheHeadByItsVocabulary) {
  const ModelConfig large = with_overrides(find_model("gpt2-mini"), {.vocabulary = 16384});
  EXPECT_DOUBLE_EQ(layer_time(round_machine(), large, LayerKind::Head, {.micro_batch_size = 4}).forward, 6 * 64);
}

TEST(LayerTimeTest, PrefersTheLayerOfTheseSizes) {
  MachineProfile machine = round_machine();
  LayerTimes other = round_layer(LayerKind::Block, "bert-large");
  for (LayerTime& time : other.times) time.forward = 100;
  machine.layers.push_back(other);
  const Workload workload{.micro_batch_size = 4};
  EXPECT_EQ(layer_time(machine, find_model("bert-large"), LayerKind::Block, workload).forward, 100);
  EXPECT_EQ(layer_time(machine, find_model("gpt2-mini"), LayerKind::Block, workload).forward, 6);
}

TEST(LayerTimeTest, RefusesAProfileWithoutSuchALayer) {
  MachineProfile machine = round_machine();
  machine.layers.pop_back();
  EXPECT_EQ(
      testing::message_of([&] { (void)layer_time(machine, find_model("gpt2-mini"), LayerKind::Head, {}); }, "accepted"),
      "machine profile 'round' has no layer of kind head; `chimera profile` measures all three");
}

}  // namespace
}  // namespace chimera
