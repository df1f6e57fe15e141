#include "engine/optimizer_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "model_config/config.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

using ::testing::IsSubsetOf;
using ::testing::UnorderedElementsAre;

/// Names of a preset's parameters with weight decay.
std::set<std::string> decayed(const std::string& model, DecayedWeights which) {
  ModelConfig config = find_model(model);
  config.layers = 1;
  std::set<std::string> names;
  for (const ParameterSpec& parameter : stage_parameters(config, {0, 1, true, true})) {
    const auto dimensions = static_cast<std::int64_t>(parameter.shape.size());
    if (has_decay(which, parameter.name, dimensions)) names.insert(parameter.name);
  }
  return names;
}

TEST(WeightDecayTest, MatricesAreNeitherBiasesNorNorms) {
  EXPECT_THAT(decayed("gpt2", DecayedWeights::Matrices),
              UnorderedElementsAre("wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight",
                                   "h.0.mlp.c_fc.weight", "h.0.mlp.c_proj.weight"));
}

TEST(WeightDecayTest, EmbeddingsAreKnownByName) {
  EXPECT_THAT(decayed("gpt2", DecayedWeights::NoEmbeddings),
              UnorderedElementsAre("h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight", "h.0.mlp.c_fc.weight",
                                   "h.0.mlp.c_proj.weight"))
      << "the tied matrix is an embedding";
  EXPECT_TRUE(decayed("gpt2-tiny", DecayedWeights::NoEmbeddings).contains("lm_head.weight"));
  const auto of_bert = decayed("bert-tiny", DecayedWeights::NoEmbeddings);
  EXPECT_THAT(of_bert, IsSubsetOf(decayed("bert-tiny", DecayedWeights::Matrices)));
  EXPECT_EQ(of_bert.size() + 3, decayed("bert-tiny", DecayedWeights::Matrices).size()) << "words, places, types";
  EXPECT_TRUE(of_bert.contains("cls.predictions.decoder.weight"));
  EXPECT_TRUE(is_embedding("model.embed_tokens.weight", 2));
  EXPECT_FALSE(is_embedding("bert.embeddings.LayerNorm.weight", 1));
  EXPECT_FALSE(is_embedding("h.0.attn.wteacher.weight", 2));
}

TEST(WeightDecayTest, AllIsEveryParameter) {
  EXPECT_EQ(decayed("bert-tiny", DecayedWeights::All).size(), stage_parameters(
                                                                  [] {
                                                                    ModelConfig config = find_model("bert-tiny");
                                                                    config.layers = 1;
                                                                    return config;
                                                                  }(),
                                                                  {0, 1, true, true})
                                                                  .size());
}

}  // namespace
}  // namespace chimera
