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
