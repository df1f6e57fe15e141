#include "model_config/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "model_config/config.h"

namespace chimera {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

ModelConfig untied(const std::string& name) { return with_overrides(find_model(name), {.tied = false}); }

ParameterSpec find_spec(const std::vector<ParameterSpec>& specs, const std::string& name) {
  const auto found = std::ranges::find(specs, name, &ParameterSpec::name);
  return found == specs.end() ? ParameterSpec{"absent", {}, {}} : *found;
}

// Published totals: gpt2 by OpenAI (tied), gpt2-64 and bert-48 by Li and Hoefler, SC'21. The others follow from
// 12 H^2 + 13 H for a block; bert-base and bert-large are Hugging Face's tied 110,106,428 and 336,226,108 plus V * H.
TEST(ParameterCountTest, OfPresetsIsThePublishedCount) {
  EXPECT_EQ(parameter_count(find_model("gpt2")), 124'439'808);
  EXPECT_EQ(parameter_count(find_model("gpt2-32")), 759'649'280);
  EXPECT_EQ(parameter_count(find_model("gpt2-64")), 1'389'327'360);
  EXPECT_EQ(parameter_count(find_model("bert-48")), 669'790'012);
  EXPECT_EQ(parameter_count(find_model("bert-base")), 110'106'428 + 30'522 * 768);
  EXPECT_EQ(parameter_count(find_model("bert-large")), 336'226'108 + 30'522 * 1024);
  EXPECT_EQ(parameter_count(untied("gpt2")), 124'439'808 + 50'257 * 768);
  EXPECT_NEAR(static_cast<double>(parameter_count(find_model("gpt2-mini"))), 5e6, 0.3e6);
}

// Counts of Hugging Face's classes. Qwen2.5-0.5B has biases on query, key and value.
TEST(ParameterCountTest, OfLlamasIsThePublishedCount) {
  EXPECT_EQ(parameter_count(find_model("smollm2-135m")), 134'515'008);
  EXPECT_EQ(parameter_count(find_model("qwen3-0.6b")), 596'049'920);
  EXPECT_EQ(parameter_count(find_model("llama-3.2-1b")), 1'235'814'400);
  EXPECT_EQ(parameter_count(find_model("llama-3-8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(find_model("llama-2-7b")), 6'738'415'616);
  EXPECT_EQ(parameter_count(find_model("llama-2-13b")), 13'015'864'320);
  EXPECT_EQ(parameter_count(find_model("llama-3-70b")), 70'553'706'496);
  EXPECT_EQ(parameter_count(find_model("mistral-7b")), 7'241'732'096);
  ModelConfig qwen2 = find_model("qwen3-0.6b");
  qwen2.layers = 24;
  qwen2.hidden = 896;
  qwen2.heads = 14;
  qwen2.key_value_heads = 2;
  qwen2.head_size = 64;
  qwen2.feed_forward = 4864;
  qwen2.query_key_norm = false;
  qwen2.attention_bias = AttentionBias::QueryKeyValue;
  EXPECT_EQ(parameter_count(qwen2), 494'032'768);
}

TEST(ParameterCountTest, OfSmallLlamaBlocksIsCloseToSmallGpt2Blocks) {
  const auto block_size = [](const std::string& name) {
    return static_cast<double>(parameter_count(find_model(name), {0, 1, false, false}));
  };
  EXPECT_NEAR(block_size("llama-tiny") / block_size("gpt2-tiny"), 1, 0.02);
  EXPECT_NEAR(block_size("llama-mini") / block_size("gpt2-mini"), 1, 0.02);
}

// First and inner stages, as all-reduced by the authors' scripts.
TEST(ParameterCountTest, OfStagesIsThePublishedCount) {
  const auto first = [](const std::string& name, std::int64_t stages) {
    const ModelConfig config = find_model(name);
    return parameter_count(config, even_partition(config.layers, stages).front());
  };
  EXPECT_EQ(first("bert-48", 16), 69'571'584);
  EXPECT_EQ(first("bert-48", 8), 107'360'256);
  EXPECT_EQ(first("bert-48", 4), 182'937'600);
  EXPECT_EQ(first("bert-48", 2), 334'092'288);
  EXPECT_EQ(first("gpt2-64", 64), 85'317'120);
  EXPECT_EQ(first("gpt2-64", 8), 223'059'200);
  EXPECT_EQ(parameter_count(find_model("gpt2-64"), {1, 2, false, false}), 19'677'440);
  EXPECT_EQ(parameter_count(find_model("bert-48"), {1, 2, false, false}), 12'596'224);
}

TEST(ParameterCountTest, OfStagesAddsUpToTheModelForEveryEvenPartition) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = untied(name);
    for (std::int64_t stages = 1; stages <= config.layers; ++stages) {
      std::int64_t sum = 0;
      for (const StageLayers& stage : even_partition(config.layers, stages)) sum += parameter_count(config, stage);
      EXPECT_EQ(sum, parameter_count(config)) << name << " in " << stages << " stages";
    }
  }
}

TEST(ParameterCountTest, ATiedMatrixCountsOncePerModelAndPerStage) {
  const ModelConfig tied = find_model("gpt2");
  const std::int64_t matrix = 50'257 * 768;
  ASSERT_EQ(tied_parameter(tied).count(), matrix);
  for (const std::int64_t stages : {2, 4, 12}) {
    std::int64_t sum = 0;
    for (const StageLayers& stage : even_partition(tied.layers, stages)) {
      sum += parameter_count(tied, stage);
      EXPECT_EQ(parameter_count(tied, stage), parameter_count(untied("gpt2"), stage)) << "as many as two matrices";
    }
    EXPECT_EQ(sum, parameter_count(tied) + matrix) << stages << " stages";
  }
}

TEST(ParameterCountTest, EqualsTheListedParameters) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = find_model(name);
    for (const StageLayers& stage : even_partition(config.layers, 4)) {
      std::int64_t sum = 0;
      for (const ParameterSpec& spec : stage_parameters(config, stage)) sum += spec.count();
      EXPECT_EQ(sum, parameter_count(config, stage)) << name << " from layer " << stage.first_layer;
    }
  }
}

TEST(ParameterCountTest, TakesNoMemoryOrTimeForHugeModels) {
  ModelConfig config = find_model("gpt2-tiny");
  config.layers = 1'000'000;
  config.hidden = 4096;
  config.feed_forward = 16'384;
  require_valid(config);
  const std::int64_t block = 12LL * 4096 * 4096 + 13 * 4096;
  EXPECT_EQ(parameter_count(config), 1'000'000 * block + (256 + 1024 + 2 + 256) * 4096);
}

TEST(ParametersTest, NamesAreUniqueAndTheSameUnderAnyPartition) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = untied(name);
    std::vector<std::string> whole;
    for (const auto& spec : stage_parameters(config, {0, config.layers, true, true})) whole.push_back(spec.name);
    std::vector<std::string> pieces;
    for (const StageLayers& stage : even_partition(config.layers, 3)) {
      for (const auto& spec : stage_parameters(config, stage)) pieces.push_back(spec.name);
    }
    EXPECT_EQ(pieces, whole) << name;
    EXPECT_EQ(std::set<std::string>(whole.begin(), whole.end()).size(), whole.size()) << name;
  }
}

TEST(ParametersTest, Gpt2LaysMatricesOutAsInOut) {
  const auto specs = block_parameters(find_model("gpt2"), 5);
  EXPECT_THAT(find_spec(specs, "h.5.attn.c_attn.weight").shape, ElementsAre(768, 3 * 768));
  EXPECT_THAT(find_spec(specs, "h.5.mlp.c_fc.weight").shape, ElementsAre(768, 3072));
  EXPECT_THAT(find_spec(specs, "h.5.mlp.c_proj.weight").shape, ElementsAre(3072, 768));
  EXPECT_THAT(find_spec(specs, "h.5.mlp.c_proj.bias").shape, ElementsAre(768));
}

TEST(ParametersTest, BertLaysMatricesOutAsOutIn) {
  const auto specs = block_parameters(find_model("bert-base"), 3);
  EXPECT_THAT(find_spec(specs, "bert.encoder.layer.3.attention.self.query.weight").shape, ElementsAre(768, 768));
  EXPECT_THAT(find_spec(specs, "bert.encoder.layer.3.intermediate.dense.weight").shape, ElementsAre(3072, 768));
  EXPECT_THAT(find_spec(specs, "bert.encoder.layer.3.output.dense.weight").shape, ElementsAre(768, 3072));
}

TEST(ParametersTest, LlamasBiasesAndNormsFollowTheConfig) {
  const auto names = [](const ModelConfig& config) {
    std::vector<std::string> result;
    for (const ParameterSpec& spec : block_parameters(config, 7))
      result.push_back(spec.name.substr(std::string("model.layers.7.").size()));
    return result;
  };
  ModelConfig config = find_model("llama-tiny");
  EXPECT_THAT(names(config),
              ElementsAre("input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                          "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                          "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"));
  config.attention_bias = AttentionBias::QueryKeyValue;
  config.query_key_norm = true;
  EXPECT_THAT(names(config), IsSupersetOf({"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias",
                                           "self_attn.q_norm.weight", "self_attn.k_norm.weight"}));
  EXPECT_THAT(names(config), Not(Contains("self_attn.o_proj.bias")));
  config.attention_bias = AttentionBias::All;
  config.feed_forward_bias = true;
  EXPECT_THAT(names(config),
              IsSupersetOf({"self_attn.o_proj.bias", "mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"}));
}

TEST(ParametersTest, LlamasHeadsHaveTheirOwnWidth) {
  const auto specs = block_parameters(find_model("qwen3-0.6b"), 0);
  EXPECT_THAT(find_spec(specs, "model.layers.0.self_attn.q_proj.weight").shape, ElementsAre(2048, 1024));
  EXPECT_THAT(find_spec(specs, "model.layers.0.self_attn.v_proj.weight").shape, ElementsAre(1024, 1024));
  EXPECT_THAT(find_spec(specs, "model.layers.0.self_attn.o_proj.weight").shape, ElementsAre(1024, 2048));
  EXPECT_THAT(find_spec(specs, "model.layers.0.self_attn.q_norm.weight").shape, ElementsAre(128));
}

TEST(ParametersTest, TiedHeadsHaveNoSeparateMatrix) {
  EXPECT_EQ(find_spec(head_parameters(find_model("gpt2")), "lm_head.weight").name, "absent");
  EXPECT_THAT(find_spec(head_parameters(untied("gpt2")), "lm_head.weight").shape, ElementsAre(50'257, 768));
  const ModelConfig tied_bert = with_overrides(find_model("bert-tiny"), {.tied = true});
  EXPECT_EQ(find_spec(head_parameters(tied_bert), "cls.predictions.decoder.weight").name, "absent");
  EXPECT_THAT(find_spec(head_parameters(tied_bert), "cls.predictions.bias").shape, ElementsAre(260));
}

TEST(ParametersTest, TheTiedMatrixBelongsToFirstAndLastStage) {
  for (const std::string& name : {std::string("gpt2"), std::string("bert-tiny")}) {
    const ModelConfig config = with_overrides(find_model(name), {.tied = true});
    const std::string tied = tied_parameter(config).name;
    EXPECT_EQ(tied, name == "gpt2" ? "wte.weight" : "bert.embeddings.word_embeddings.weight");
    const auto stages = even_partition(config.layers, 3);
    EXPECT_EQ(find_spec(stage_parameters(config, stages[0]), tied).name, tied);
    EXPECT_EQ(find_spec(stage_parameters(config, stages[1]), tied).name, "absent");
    EXPECT_EQ(find_spec(stage_parameters(config, stages[2]), tied).initial, tied_parameter(config).initial);
    for (const StageLayers& stage : stages) EXPECT_EQ(find_spec(own_parameters(config, stage), tied).name, "absent");
  }
}

TEST(ParametersTest, InitialValuesFollowTheKindOfParameter) {
  const Initial normal = {Initial::Kind::Normal, 0.02};
  const Initial residual = {Initial::Kind::Normal, 0.02 / std::sqrt(24.0)};  // 2 projections in each of 12 layers
  const auto block = block_parameters(find_model("gpt2"), 0);
  EXPECT_EQ(find_spec(block, "h.0.attn.c_attn.weight").initial, normal);
  EXPECT_EQ(find_spec(block, "h.0.attn.c_proj.weight").initial, residual);
  EXPECT_EQ(find_spec(block, "h.0.mlp.c_fc.weight").initial, normal);
  EXPECT_EQ(find_spec(block, "h.0.mlp.c_proj.weight").initial, residual);
  EXPECT_EQ(find_spec(block, "h.0.mlp.c_proj.bias").initial.kind, Initial::Kind::Zeros);
  EXPECT_EQ(find_spec(block, "h.0.ln_1.weight").initial.kind, Initial::Kind::Ones);
  EXPECT_EQ(find_spec(block, "h.0.ln_1.bias").initial.kind, Initial::Kind::Zeros);
  const auto bert = block_parameters(find_model("bert-base"), 0);
  EXPECT_EQ(find_spec(bert, "bert.encoder.layer.0.output.dense.weight").initial, normal);
}

}  // namespace
}  // namespace chimera
