#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "generate/registry.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string cut(const std::string& name, const char* schedule, PipelineShape shape, const ModelConfig& model) {
  const Schedule generated = find_generator(schedule).generate(shape);
  return to_text(named_partition(parse_partition(name), {.schedule = generated, .model = model, .workload = {4, 128}}));
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
  slightly.vocabulary = 6000;  // the head has the FLOPs of about 2 blocks, a gain below kFasterThanEven with 2 stages
  EXPECT_EQ(cut("balanced", "1f1b", {2, 4}, slightly), "17,15");
  EXPECT_EQ(cut("auto", "1f1b", {2, 4}, slightly), "16,16");
}

TEST(NamedPartitionTest, AutoStaysEvenIfOtherStagesDoNotFit) {
  const Schedule schedule = find_generator("1f1b").generate({2, 8});
  const auto in = [&](double memory) {
    return to_text(named_partition(
        {PartitionRule::Auto}, {.schedule = schedule, .model = large_head(), .workload = {4, 128}, .memory = memory}));
  };
  EXPECT_EQ(in(1e12), "7,1");
  EXPECT_EQ(in(250e6), "4,4");
}

/// The head's logits are 30 bytes each, which FLOPs alone leave out.
TEST(NamedPartitionTest, BytesCountBesideFlops) {
  const Schedule schedule = find_generator("1f1b").generate({8, 8});
  const auto on = [&](double flops_per_byte) {
    return to_text(named_partition({PartitionRule::Auto}, {.schedule = schedule,
                                                           .model = find_model("llama-3-8b"),
                                                           .workload = {1, 2048, 2},
                                                           .flops_per_byte = flops_per_byte}));
  };
  EXPECT_EQ(on(0), "");
  EXPECT_EQ(on(200), "");
}

/// A profile's times count in place of FLOPs.
TEST(NamedPartitionTest, TakesMeasuredTimes) {
  const Schedule schedule = find_generator("1f1b").generate({2, 8});
  ModelLoads loads = flop_loads(find_model("gpt2-mini"), {4, 128});
  loads.embedding.forward = 4 * loads.blocks.front().forward;
  loads.embedding.weight_gradient = 8 * loads.blocks.front().weight_gradient;
  const PartitionProblem problem{
      .schedule = schedule, .model = find_model("gpt2-mini"), .workload = {4, 128}, .loads = loads};
  EXPECT_EQ(to_text(named_partition({PartitionRule::Auto}, problem)), "2,6");
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
