#include "model/make_stage.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "model/examples.h"

namespace chimera {
namespace {

at::Tensor value_of(const Stage& stage, const std::string& name) {
  for (const Parameter& parameter : stage.parameters()) {
    if (parameter.name == name) return parameter.value;
  }
  return {};
}

TEST(InitialValuesTest, AreTheSameUnderEveryPartition) {
  for (const Family family : {Family::Gpt2, Family::Bert, Family::Llama}) {
    const ModelConfig config = small_model(family);
    const auto single = make_stage(config, whole(config), at::kFloat, initial_values_of(7));
    for (std::int64_t stages = 2; stages <= config.layers; ++stages) {
      std::size_t seen = 0;
      for (const StageLayers& layers : even_partition(config.layers, stages)) {
        const auto stage = make_stage(config, layers, at::kFloat, initial_values_of(7));
        for (const Parameter& parameter : stage->parameters()) {
          EXPECT_TRUE(at::equal(parameter.value, value_of(*single, parameter.name))) << parameter.name;
          ++seen;
        }
      }
      EXPECT_EQ(seen, single->parameters().size());
    }
  }
}

TEST(InitialValuesTest, AreTheRandomNumbersOfTheParametersName) {
  const ModelConfig config = small_model(Family::Gpt2);
  const auto stage = make_stage(config, whole(config), at::kDouble, initial_values_of(7));
  const at::Tensor value = value_of(*stage, "h.3.attn.c_attn.weight");
  const CounterRandom random(7, "h.3.attn.c_attn.weight");
  EXPECT_EQ(value[2][5].item<double>(), 0.02 * random.normal(2 * 24 + 5));
}

TEST(InitialValuesTest, AreTheSameOnAnyNumberOfThreads) {
  ModelConfig config = small_model(Family::Gpt2);
  config.vocabulary = 5000;  // large enough for several threads
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = make_stage(config, whole(config), at::kFloat, initial_values_of(7));
  at::set_num_threads(3);
  const auto three = make_stage(config, whole(config), at::kFloat, initial_values_of(7));
  at::set_num_threads(before);
  for (const Parameter& parameter : three->parameters())
    EXPECT_TRUE(at::equal(parameter.value, value_of(*one, parameter.name))) << parameter.name;
}

TEST(InitialValuesTest, DifferBySeedAndName) {
  const ModelConfig config = small_model(Family::Gpt2);
  const auto stage = make_stage(config, whole(config), at::kDouble, initial_values_of(7));
  const auto other = make_stage(config, whole(config), at::kDouble, initial_values_of(8));
  const std::string name = "h.0.mlp.c_fc.weight";
  EXPECT_FALSE(at::equal(value_of(*stage, name), value_of(*other, name)));
  EXPECT_FALSE(at::equal(value_of(*stage, name), value_of(*stage, "h.1.mlp.c_fc.weight")));
}

TEST(InitialValuesTest, AreRoundedFromFloat64AndAtLeastFloat32) {
  const ModelConfig config = small_model(Family::Bert);
  const auto wide = make_stage(config, whole(config), at::kDouble, initial_values_of(7));
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto narrow = make_stage(config, whole(config), dtype, initial_values_of(7));
    for (const Parameter& parameter : narrow->parameters()) {
      EXPECT_EQ(parameter.value.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::equal(parameter.value, value_of(*wide, parameter.name).to(at::kFloat))) << parameter.name;
    }
  }
}

TEST(InitialValuesTest, ZerosAndOnesWhereNotRandom) {
  const ModelConfig config = small_model(Family::Bert);
  const auto stage = make_stage(config, whole(config), at::kFloat, initial_values_of(7));
  EXPECT_TRUE(at::equal(value_of(*stage, "cls.predictions.bias"), at::zeros({11})));
  EXPECT_TRUE(at::equal(value_of(*stage, "bert.embeddings.LayerNorm.weight"), at::ones({8})));
}

}  // namespace
}  // namespace chimera
