#include "hugging_face/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "support/message_of.h"

namespace chimera {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

ModelConfig read(const json& config) { return model_from_config_json(json_text(config), "config.json", "m"); }

std::string refusal_of_text(const std::string& text) {
  return testing::message_of([&] { (void)model_from_config_json(text, "config.json", "m"); });
}

/// The error for `config` with some fields replaced.
std::string refusal_of(json config, const json& more) {
  config.update(more);
  return refusal_of_text(json_text(config));
}

json gpt2() {
  return {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", 48},         {"n_head", 4},
          {"n_layer", 3},         {"n_positions", 40},
          {"vocab_size", 64}};
}

json bert() {
  return {{"model_type", "bert"},     {"hidden_size", 48},       {"num_hidden_layers", 3},
          {"num_attention_heads", 4}, {"intermediate_size", 80}, {"vocab_size", 64}};
}

json llama(const char* type = "llama") {
  return {{"model_type", type},       {"hidden_size", 48},       {"num_hidden_layers", 3},
          {"num_attention_heads", 4}, {"intermediate_size", 80}, {"num_key_value_heads", 2},
          {"vocab_size", 64},         {"rms_norm_eps", 1e-5},    {"max_position_embeddings", 128}};
}

TEST(ConfigJsonTest, ReadsGpt2WithTheDefaultsOfItsClass) {
  const ModelConfig small = read(gpt2());
  EXPECT_EQ(small.name, "m");
  EXPECT_EQ(small.family, Family::Gpt2);
  EXPECT_EQ(small.layers, 3);
  EXPECT_EQ(small.feed_forward, 4 * 48);
  EXPECT_EQ(small.positions, 40);
  EXPECT_TRUE(small.tied);
  ModelConfig whole = read({{"model_type", "gpt2"}});
  whole.name = "gpt2";
  whole.norm_epsilon = {};  // given in the file, not the family's default
  EXPECT_EQ(whole, find_model("gpt2"));
}

TEST(ConfigJsonTest, ReadsBert) {
  const ModelConfig model = read(bert());
  EXPECT_EQ(model.family, Family::Bert);
  EXPECT_EQ(model.positions, 512);
  EXPECT_EQ(model.norm_epsilon, 1e-12);
  EXPECT_TRUE(model.tied);
  EXPECT_FALSE(read({{"model_type", "bert"}, {"tie_word_embeddings", false}}).tied);
}

TEST(ConfigJsonTest, ReadsTheClassesOfTheLlamaFamily) {
  const ModelConfig plain = read(llama());
  EXPECT_EQ(plain.family, Family::Llama);
  EXPECT_EQ(key_value_heads_of(plain), 2);
  EXPECT_EQ(head_size_of(plain), 12);
  EXPECT_EQ(plain.rope_theta, 10'000);
  EXPECT_EQ(plain.attention_bias, AttentionBias::None);
  EXPECT_FALSE(plain.tied);
  EXPECT_FALSE(plain.sliding_window);

  json biased = llama();
  biased.update({{"attention_bias", true}, {"mlp_bias", true}, {"head_dim", 20}});
  EXPECT_EQ(read(biased).attention_bias, AttentionBias::All);
  EXPECT_TRUE(read(biased).feed_forward_bias);
  EXPECT_EQ(head_size_of(read(biased)), 20);

  EXPECT_EQ(read(llama("qwen2")).attention_bias, AttentionBias::QueryKeyValue);
  EXPECT_TRUE(read(llama("qwen3")).query_key_norm);
  EXPECT_EQ(head_size_of(read(llama("qwen3"))), 128) << "of its class";
  EXPECT_EQ(read(llama("mistral")).sliding_window, 4096) << "of its class";
}

TEST(ConfigJsonTest, MissingFieldHasTheDefaultAndNullDoesNot) {
  json config = llama("mistral");
  config["sliding_window"] = nullptr;
  EXPECT_FALSE(read(config).sliding_window);
  config.erase("num_key_value_heads");
  EXPECT_EQ(key_value_heads_of(read({{"model_type", "mistral"}})), 8);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(key_value_heads_of(read(config)), 4);
  json qwen = llama("qwen3");
  qwen["head_dim"] = nullptr;
  EXPECT_EQ(head_size_of(read(qwen)), 12);
}

TEST(ConfigJsonTest, ReadsBothSpellingsOfRotaryPositions) {
  const json rule = {
      {"factor", 32}, {"low_freq_factor", 1}, {"high_freq_factor", 4}, {"original_max_position_embeddings", 64}};
  json now = llama();
  now["rope_theta"] = 7.0;  // the nested value takes precedence
  now["rope_parameters"] = rule;
  now["rope_parameters"].update({{"rope_theta", 5e5}, {"rope_type", "llama3"}});
  json before = llama();
  before["rope_theta"] = 5e5;
  before["rope_scaling"] = rule;
  before["rope_scaling"]["type"] = "llama3";
  EXPECT_EQ(read(now), read(before));
  EXPECT_EQ(read(now).rope_scaling.type, RopeScalingType::Llama3);
  EXPECT_EQ(read(now).rope_scaling.original_positions, 64);
  EXPECT_EQ(read(now).rope_theta, 5e5);

  json both = now;
  both["rope_scaling"] = before["rope_scaling"];
  EXPECT_EQ(read(both), read(now)) << "the same rule in both spellings";
  both["rope_scaling"]["rope_theta"] = 5e4;
  EXPECT_THAT(refusal_of(both, json::object()), HasSubstr("rope_parameters and rope_scaling differ"));

  json linear = llama();
  linear["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  EXPECT_EQ(read(linear).rope_scaling.type, RopeScalingType::Linear);
  EXPECT_EQ(read(linear).rope_scaling.factor, 4);
  linear["rope_scaling"] = nullptr;
  EXPECT_EQ(read(linear).rope_scaling.type, RopeScalingType::None);
}

TEST(ConfigJsonTest, ReadsWindowsOfQwen) {
  json config = llama("qwen2");
  config.update({{"sliding_window", 16}, {"max_window_layers", 2}});
  EXPECT_FALSE(read(config).sliding_window) << "not used";
  config["use_sliding_window"] = true;
  EXPECT_EQ(read(config).sliding_window, 16);
  config["max_window_layers"] = 3;
  EXPECT_FALSE(read(config).sliding_window) << "no layer is that late";
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(read(config).sliding_window, 16);
}

struct Unsupported {
  json config;
  json more;
  const char* says;
};

TEST(ConfigJsonTest, RejectsUnsupportedFeaturesByName) {
  const std::vector<Unsupported> examples = {
      {gpt2(), {{"model_type", "gpt_neo"}}, "model_type is 'gpt_neo'; Chimera's own models are gpt2, bert, llama"},
      {llama(), {{"model_type", "llama4"}}, "model_type is 'llama4'; Chimera's own models"},
      {llama(), {{"model_type", "qwen2_vl"}}, "train it in Python, where cp.layers_of() cuts models"},
      {llama(),
       {{"model_type", "gemma3n"}, {"text_config", {{"model_type", "gemma3n_text"}}}},
       "train it in Python, where cp.layers_of() cuts models"},
      {llama(),
       {{"model_type", "mistral3"}, {"text_config", {{"model_type", "mistral"}}}},
       "its language model is a mistral: save that alone"},
      {gpt2(), {{"model_type", nullptr}}, "has no model_type"},
      {gpt2(), {{"architectures", {"GPT2ForSequenceClassification"}}}, "architectures must be [\"GPT2LMHeadModel\"]"},
      {bert(), {{"architectures", {"BertForMaskedLM"}}}, "architectures must be [\"BertForPreTraining\"]"},
      {llama(), {{"quantization_config", {{"bits", 4}}}}, "quantization_config is {\"bits\":4}"},
      {llama(), {{"auto_map", {{"AutoModel", "x.Y"}}}}, "auto_map"},
      {gpt2(), {{"activation_function", "relu"}}, "activation_function is \"relu\""},
      {gpt2(), {{"scale_attn_weights", false}}, "scale_attn_weights is false"},
      {gpt2(), {{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx is true"},
      {gpt2(), {{"add_cross_attention", true}}, "add_cross_attention is true"},
      {bert(), {{"hidden_act", "gelu_new"}}, "hidden_act is \"gelu_new\""},
      {bert(), {{"is_decoder", true}}, "is_decoder is true"},
      {bert(), {{"position_embedding_type", "relative_key"}}, "position_embedding_type is \"relative_key\""},
      {bert(), {{"type_vocab_size", 1}}, "type_vocab_size is 1"},
      {llama(), {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\""},
      {llama(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}, "type is \"dynamic\""},
      {llama(), {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2}}}}, "rope_type is \"yarn\""},
      {llama(), {{"rope_scaling", {{"type", "linear"}}}}, "factor is missing"},
      {llama(),
       {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}, {"rope_parameters", {{"rope_type", "default"}}}},
       "rope_parameters and rope_scaling differ"},
      {llama(), {{"rope_scaling", {{"type", "llama3"}, {"factor", 2}}}}, "low_freq_factor is missing"},
      {llama(), {{"rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}}}, "separate numbers for some layers"},
      {llama(), {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5"},
      {llama(), {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, "partial_rotary_factor is 0.5"},
      {llama(), {{"rope_interleaved", true}}, "rope_interleaved is true"},
      {llama("qwen3"), {{"layer_types", {"chunked_attention"}}}, "layer_types has \"chunked_attention\""},
      {llama("qwen3"), {{"layer_types", {"sliding_attention"}}}, "no sliding_window is used"},
      {llama("qwen3"),
       {{"layer_types", {"full_attention"}}, {"num_hidden_layers", 2}},
       "layer_types has 1 entries for 2 layers"},
      {llama(), {{"layer_types", {"full_attention"}}, {"num_hidden_layers", 2}}, "layer_types has 1 entries for 2"},
      {llama(), {{"hidden_size", "48"}}, "hidden_size must be a whole number, not \"48\""},
      {llama(), {{"hidden_size", 48.5}}, "hidden_size must be a whole number"},
      {llama(), {{"hidden_size", 18446744073709551615U}}, "hidden_size must be a whole number"},
      {llama(), {{"hidden_size", -1}}, "hidden is -1"},
      {llama(), {{"num_attention_heads", 0}}, "heads is 0"},
      {llama(), {{"num_attention_heads", 5}}, "5 heads do not divide"},
      {gpt2(), {{"n_embd", 9223372036854775807}}, "hidden is 9223372036854775807"},
      {llama(), {{"rms_norm_eps", "1e-5"}}, "rms_norm_eps must be a number"},
      {llama(), {{"tie_word_embeddings", 1}}, "tie_word_embeddings must be true or false"},
      {llama(), {{"rope_parameters", 3}}, "rope_parameters: must be an object"},
  };
  for (const Unsupported& example : examples) {
    const std::string message = refusal_of(example.config, example.more);
    EXPECT_THAT(message, HasSubstr(example.says)) << example.more;
    EXPECT_EQ(message.rfind("config.json: ", 0), 0U) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ConfigJsonTest, RejectsInvalidConfigs) {
  EXPECT_THAT(refusal_of_text(""), HasSubstr("config.json: "));
  EXPECT_THAT(refusal_of_text("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal_of_text(R"({"model_type":"gpt2","n_head":2,"n_head":3})"), HasSubstr("twice"));
}

/// Presets of all families, and features that only the classes support.
TEST(ConfigJsonTest, ReadsBackWhatItWrites) {
  std::vector<ModelConfig> models;
  for (const std::string& name : preset_names()) models.push_back(find_model(name));
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) models.push_back(read(llama(type)));
  for (const ModelConfig& model : models) {
    const std::string text = to_config_json(model, ElementType::BF16);
    ModelConfig back = model_from_config_json(text, "config.json", model.name);
    EXPECT_EQ(back.norm_epsilon, norm_epsilon_of(model)) << model.name;
    back.norm_epsilon = model.norm_epsilon;
    back.key_value_heads = model.key_value_heads;
    back.head_size = model.head_size;
    EXPECT_EQ(back, model) << text;
    EXPECT_EQ(read_json(text)["dtype"], "bfloat16");
  }
}

TEST(ConfigJsonTest, NoClassSupportsEveryFeature) {
  ModelConfig model = read(llama("qwen2"));
  model.query_key_norm = true;
  EXPECT_THROW((void)to_config_json(model, ElementType::F32), ConfigError);
}

TEST(ConfigJsonTest, ChangesTheTypeAndNothingElse) {
  json config = llama();
  config["torch_dtype"] = "float16";
  config["something"] = {1, 2};
  const json changed = read_json(with_element_type(json_text(config), ElementType::F32));
  config.erase("torch_dtype");
  config["dtype"] = "float32";
  EXPECT_EQ(changed, config);
}

}  // namespace
}  // namespace chimera
