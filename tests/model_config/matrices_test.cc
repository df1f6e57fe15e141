// Which matrices Muon updates, and how several ranks share their iterations.

#include "model_config/matrices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_config/config.h"
#include "model_config/footprint.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

TEST(MatricesTest, AreTheProductsOfBlocks) {
  const auto count = [](const std::string& name) { return logical_matrices(name, {6, 12}).size(); };
  EXPECT_EQ(count("h.11.attn.c_attn.weight"), 3U);
  EXPECT_EQ(count("h.11.attn.c_proj.weight"), 1U);
  EXPECT_EQ(count("bert.encoder.layer.0.attention.self.query.weight"), 1U);
  EXPECT_EQ(count("model.layers.3.mlp.gate_proj.weight"), 1U);
  for (const char* other : {"wte.weight", "wpe.weight", "lm_head.weight", "model.embed_tokens.weight",
                            "bert.pooler.dense.weight", "cls.predictions.transform.dense.weight"})
    EXPECT_EQ(count(other), 0U) << other;
  EXPECT_EQ(logical_matrices("h.0.attn.c_attn.bias", {12}).size(), 0U);
  const LogicalMatrix values = logical_matrices("h.0.attn.c_attn.weight", {4, 12}).back();
  EXPECT_THAT((std::vector{values.out, values.in, values.first}), ElementsAre(4, 4, 8));
}

TEST(MatricesTest, EveryFamilyHasTheElementsOfItsProducts) {
  const auto elements = [](const std::string& name, const ModelOverrides& fields) {
    const ModelConfig model = with_overrides(find_model(name), fields);
    return elements_of(logical_matrices(model, {0, model.layers, true, true}));
  };
  const ModelOverrides fields{.layers = 3, .hidden = 8, .heads = 2};
  EXPECT_EQ(elements("gpt2-tiny", fields), 3 * 12 * 8 * 8) << "4 hidden^2 in attention, 8 after it";
  EXPECT_EQ(elements("bert-tiny", fields), 3 * 12 * 8 * 8);
  ModelOverrides llama = fields;
  llama.key_value_heads = 1;
  EXPECT_EQ(elements("llama-tiny", llama), 3 * (2 * 64 + 2 * 32 + 3 * 3 * 64));
}

TEST(MatricesTest, IterationsOfAWideAndATallMatrixCostTheSame) {
  EXPECT_EQ(iteration_flops(4, 8), 5 * (4 * 16 * 8 + 2 * 64));
  EXPECT_EQ(iteration_flops(8, 4), iteration_flops(4, 8));
}

TEST(MatricesTest, LargestCostsGoFirstToTheMemberWithTheLeast) {
  EXPECT_THAT(share_out({384, 384, 384, 640}, 2), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(share_out({1, 2, 3}, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(share_out({5}, 3), ElementsAre(0));
  const LogicalMatrix square{4, 4};
  const double each = iteration_flops(4, 4);
  EXPECT_EQ(busiest_iterations({square, square, square}, 2), 2 * each);
  EXPECT_EQ(busiest_iterations({square, square, square}, 1), 3 * each);
  EXPECT_EQ(busiest_iterations({}, 2), 0);
}

TEST(MatricesTest, FootprintsCountOneMomentumOfMatricesAndTheBufferOfResults) {
  const ModelConfig model = find_model("gpt2-tiny");
  const StageLayers stage{0, 2, true, false};
  const std::int64_t matrices = elements_of(logical_matrices(model, stage));
  const Workload muon = workload_of(DataType::Float32, OptimizerKind::Muon, 128);
  const Workload adamw = workload_of(DataType::Float32, OptimizerKind::AdamW, 128);
  const double bytes = stage_footprint(model, stage, adamw).memory.optimizer;
  EXPECT_EQ(stage_footprint(model, stage, muon).memory.optimizer, bytes - 4.0 * static_cast<double>(matrices));
  EXPECT_EQ(gathered_bytes(model, stage, muon, 2), 4.0 * static_cast<double>(matrices));
  EXPECT_EQ(gathered_bytes(model, stage, muon, 1), 0);
  EXPECT_EQ(gathered_bytes(model, stage, adamw, 2), 0);
  EXPECT_EQ(gathered_bytes(model, stage, workload_of(DataType::BFloat16, OptimizerKind::Muon, 128), 2),
            2.0 * static_cast<double>(matrices));
}

}  // namespace
}  // namespace chimera
