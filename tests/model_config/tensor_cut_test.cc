#include "model_config/tensor_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model_config/config.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TensorPlace place_of(const ModelConfig& model, std::int64_t rank, std::int64_t ranks) {
  return {rank, ranks, head_groups(model, ranks)};
}

TEST(TensorCutTest, SharesConsistOfWholeHeads) {
  const ModelConfig model = find_model("llama-mini");  // 7 heads of 32, one of keys and values
  const auto held = [&](const char* name, std::int64_t rank) {
    for (const ParameterSpec& parameter : block_parameters(model, 0))
      if (parameter.name.ends_with(name)) return held_shape(parameter, place_of(model, rank, 2));
    return std::vector<std::int64_t>();
  };
  EXPECT_THAT(held("q_proj.weight", 0), ElementsAre(4 * 32, 224));
  EXPECT_THAT(held("q_proj.weight", 1), ElementsAre(3 * 32, 224));
  EXPECT_THAT(held("k_proj.weight", 1), ElementsAre(32, 224)) << "whole on both ranks";
  EXPECT_THAT(held("o_proj.weight", 1), ElementsAre(224, 3 * 32));
  EXPECT_THAT(held("up_proj.weight", 1), ElementsAre(360, 224));
}

TEST(TensorCutTest, PartsOfAllRanksAreTheWhole) {
  for (const char* name : {"gpt2-mini", "bert-tiny", "llama-mini", "smollm2-135m", "qwen3-0.6b"}) {
    const ModelConfig model = find_model(name);
    for (const std::int64_t ranks : {2, 3, 4}) {
      if (!find_split_error(model, ranks).empty()) continue;
      for (const ParameterSpec& parameter : block_parameters(model, 0)) {
        std::int64_t held = 0;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          held += held_elements(parameter, place_of(model, rank, ranks));
        EXPECT_EQ(held, (is_cut(parameter, ranks) ? 1 : ranks) * parameter.count()) << parameter.name << ", " << ranks;
      }
    }
  }
}

TEST(TensorCutTest, KeysStayWithTheirQueries) {
  const ModelConfig model = find_model("smollm2-135m");  // 9 heads, 3 of keys and values
  EXPECT_EQ(place_of(model, 0, 2).share_of_heads(9).count, 6);
  EXPECT_EQ(place_of(model, 1, 2).share_of_heads(9).count, 3);
  EXPECT_EQ(place_of(model, 1, 2).share_of_heads(3).count, 1);
}

TEST(TensorCutTest, RefusalsNameAPossibleNumber) {
  const auto require = [](const char* model, std::int64_t ranks) {
    return [=] { require_divisible(find_model(model), ranks); };
  };
  for (const std::int64_t ranks : {1, 2, 3, 4, 7}) EXPECT_NO_THROW(require("llama-mini", ranks)()) << ranks;
  EXPECT_THAT(
      require("llama-mini", 8),
      ThrowsMessage<ConfigError>("--tensor-parallel 8: parts of 1 of the 7 heads of model llama-mini leave none "
                                 "to the last rank; 7 is possible"));
  EXPECT_THAT(require("smollm2-135m", 6), ThrowsMessage<ConfigError>(HasSubstr("; 3 is possible")));
  EXPECT_NO_THROW(require("smollm2-135m", 9)());
}

}  // namespace
}  // namespace chimera
