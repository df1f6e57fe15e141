#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "generate/registry.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string cut(const std::string& name, const char* schedule, PipelineShape shape, const ModelConfig& model) {
  const Schedule generated = find_generator(schedule).generate(shape);
  return to_text(
      resolve_partition(parse_partition(name), {.schedule = generated, .model = model, .workload = {4, 128}}));
}

ModelConfig large_head() {
  ModelConfig model = find_model("gpt2-mini");
  model.vocabulary = 16384;  // the head has the FLOPs of 5 blocks
  return model;
}

TEST(NamedPartitionTest, EvenAndExplicitPartitionsAreExact) {
  EXPECT_EQ(cut("even", "1f1b", {3, 3}, large_head()), "3,3,2");
  EXPECT_EQ(cut("1,5,2", "1f1b", {3, 3}, large_head()), "1,5,2");
  EXPECT_EQ(cut("1,1,1,1,1,1,1,1", "interleaved-1f1b", {4, 4, 2, 2}, large_head()), "1,1,1,1,1,1,1,1");
}

TEST(NamedPartitionTest, BalancedCountsTheHead) {
  EXPECT_EQ(cut("balanced", "1f1b", {2, 8}, find_model("gpt2-mini")), "4,4");
  EXPECT_EQ(cut("balanced", "1f1b", {2, 8}, large_head()), "7,1");
  EXPECT_EQ(cut("balanced", "chimera", {4, 4}, large_head()), "1,3,3,1");
}

TEST(NamedPartitionTest, AutoIsBalancedOnlyWhereThatIsFaster) {
  EXPECT_EQ(cut("auto", "1f1b", {2, 8}, large_head()), "7,1");
  EXPECT_EQ(cut("auto", "1f1b", {3, 3}, find_model("gpt2-mini")), "3,3,2") << "the last stage has the head";
  EXPECT_EQ(cut("auto", "1f1b", {1, 4}, large_head()), "8");
  ModelConfig slightly = find_model("gpt2-mini");
  slightly.layers = 32;
  slightly.vocabulary = 4500;  // the head has the FLOPs of 1.6 blocks, so that one block less saves 2 %
  EXPECT_EQ(cut("balanced", "1f1b", {2, 4}, slightly), "17,15");
  EXPECT_EQ(cut("auto", "1f1b", {2, 4}, slightly), "16,16");
}

/// The first stage has the most activations in flight, so less memory leaves it fewer blocks.
TEST(NamedPartitionTest, AutoStaysWithinMemory) {
  const Schedule schedule = find_generator("1f1b").generate({2, 8});
  const auto in = [&](double memory) {
    const PartitionProblem problem{.schedule = schedule, .model = large_head(), .workload = {4, 128}, .memory = memory};
    return resolve_partition({PartitionRule::Auto}, problem).front().end_layer;
  };
  std::vector<std::int64_t> blocks;
  for (double memory = 100e6; memory < 300e6; memory += 10e6) blocks.push_back(in(memory));
  EXPECT_EQ(blocks.front(), 4) << "nothing fits";
  EXPECT_TRUE(std::ranges::is_sorted(blocks));
  EXPECT_GT(std::ranges::count(blocks, 5) + std::ranges::count(blocks, 6), 0);
  EXPECT_EQ(blocks.back(), 7);
}

/// The head of gpt2 has the FLOPs of 4.9 blocks. Its logits move so many bytes that it takes the time of 6 on a GPU.
TEST(NamedPartitionTest, BytesCountBesideFlops) {
  const Schedule schedule = find_generator("1f1b").generate({2, 8});
  const auto cut_by = [&](double flops_per_byte) {
    const Workload workload{.sequence = 1024, .compute_bytes = 2, .logits_of_chunk = kLogitsOfGpuChunk};
    const PartitionProblem problem{
        .schedule = schedule, .model = find_model("gpt2"), .workload = workload, .flops_per_byte = flops_per_byte};
    return to_text(resolve_partition({PartitionRule::Auto}, problem));
  };
  EXPECT_EQ(cut_by(0), "8,4");
  EXPECT_EQ(cut_by(200), "9,3");
}

/// A profile's times count in place of FLOPs.
TEST(NamedPartitionTest, TakesMeasuredTimes) {
  const Schedule schedule = find_generator("1f1b").generate({2, 8});
  ModelLoads loads = flop_loads(find_model("gpt2-mini"), {4, 128});
  loads.embedding.forward = 4 * loads.blocks.front().forward;
  loads.embedding.weight_gradient = 8 * loads.blocks.front().weight_gradient;
  const PartitionProblem problem{
      .schedule = schedule, .model = find_model("gpt2-mini"), .workload = {4, 128}, .loads = loads};
  EXPECT_EQ(to_text(resolve_partition({PartitionRule::Auto}, problem)), "2,6");
}

// Where T ranks do not divide the tokens, BERT's head frees the output of the last block and may keep less.
TEST(NamedPartitionTest, AHeadMayFreeMoreThanItKeeps) {
  Workload workload{.micro_batch_size = 4, .sequence = 64, .tensor_parallel = 2, .cuts_tokens = false};
  const ModelConfig model = with_overrides(find_model("bert-tiny"), {.hidden = 256});
  const ModelLoads loads = flop_loads(model, workload);
  EXPECT_EQ(loads.head.activations, 0);
  const StageFootprint last = stage_footprint(model, {0, 1, false, true}, workload);
  EXPECT_DOUBLE_EQ(loads.blocks.back().activations + loads.boundary, last.memory.activations);
  EXPECT_GT(loads.blocks.front().activations, loads.blocks.back().activations);
  const Schedule schedule = find_generator("1f1b").generate({2, 4});
  EXPECT_EQ(
      resolve_partition({PartitionRule::Auto}, {.schedule = schedule, .model = model, .workload = workload}).size(),
      2U);
}

TEST(NamedPartitionTest, RefusesInvalidPartitions) {
  const auto refusal = [](const std::string& name, const char* schedule, const char* words) {
    EXPECT_THAT(
        [&] {
          (void)cut(name, schedule, {2, 2}, find_model("gpt2-mini"));
        },
        ThrowsMessage<ConfigError>(HasSubstr(words)))
        << name;
  };
  refusal("8,9", "1f1b", "--partition 8,9: up to stage 1 more layers than the 8 of the model");
  refusal("3,4", "1f1b", "--partition 3,4: 7 layers in all; the model has 8");
  refusal("8", "1f1b", "--partition 8: layers for 1 stages; the schedule cuts the model into 2");
  refusal("4,4", "zb-v", "--partition 4,4: layers for 2 stages; the schedule cuts the model into 4");
  refusal("8,0", "1f1b", "--partition 8,0: 0 layers on stage 1; each stage needs at least one");
  refusal("8,-1", "1f1b", "-1 layers on stage 1");
  refusal("balance", "1f1b", "unknown --partition 'balance'; did you mean 'balanced'");
  for (const char* junk : {"", ",", "4,", ",4", "4,,4", "4;4", "4 4", " 4,4", "4,4 ", "4,x", "4.0,4", "+4,4",
                           "99999999999999999999,1", "0x4,4"})
    refusal(junk, "1f1b", "nor the number of layers on each stage, as in 8,9,9,6");
}

}  // namespace
}  // namespace chimera
