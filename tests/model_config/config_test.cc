#include "model_config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include "core/error.h"
#include "support/message_of.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ModelConfigTest, EveryPresetIsValidAndFoundByItsName) {
  EXPECT_EQ(preset_names().size(), 19U);
  for (const std::string& name : preset_names()) {
    const ModelConfig config = find_model(name);
    EXPECT_EQ(config.name, name);
    EXPECT_NO_THROW(require_valid(config)) << name;
    if (config.family == Family::Llama) continue;
    EXPECT_EQ(config.feed_forward, 4 * config.hidden) << name;
    EXPECT_EQ(config.tied, name == "gpt2") << name;
    EXPECT_EQ(config.family, name.starts_with("bert") ? Family::Bert : Family::Gpt2) << name;
  }
}

TEST(ModelConfigTest, NamesOfTheHubAreNotBelowAFolderThatExists) {
  const testing::Scratch scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path("."));
  EXPECT_NE(hub_download("run/model"), "");
  std::filesystem::create_directory("run");
  EXPECT_EQ(hub_download("run/model"), "");
  std::filesystem::current_path(before);
}

TEST(ModelConfigTest, SmallPresetsReadBytes) {
  EXPECT_EQ(find_model("gpt2-tiny").vocabulary, 256);
  EXPECT_EQ(find_model("gpt2-mini").vocabulary, 256);
  EXPECT_EQ(find_model("bert-tiny").vocabulary, 260);
}

// Values of the makers' config.json.
TEST(ModelConfigTest, LlamaPresetsArePublishedValues) {
  EXPECT_EQ(find_model("smollm2-135m").rope_theta, 1e5);
  EXPECT_EQ(head_size_of(find_model("smollm2-135m")), 64);
  const ModelConfig qwen = find_model("qwen3-0.6b");
  EXPECT_EQ(head_size_of(qwen) * qwen.heads, 2048) << "not the hidden width";
  EXPECT_EQ(norm_epsilon_of(qwen), 1e-6);
  EXPECT_TRUE(qwen.query_key_norm);
  const RopeScaling scaling = {RopeScalingType::Llama3, 32, 1, 4, 8192};
  EXPECT_EQ(find_model("llama-3.2-1b").rope_scaling, scaling);
  EXPECT_EQ(find_model("llama-3-8b").rope_scaling, RopeScaling());
  EXPECT_EQ(find_model("mistral-7b").sliding_window, 4096);
}

TEST(ModelConfigTest, MissingSizesFollowFromTheOthers) {
  ModelConfig config = find_model("llama-mini");
  EXPECT_EQ(head_size_of(config), 32);
  EXPECT_EQ(key_value_heads_of(config), 1);
  config.key_value_heads.reset();
  EXPECT_EQ(key_value_heads_of(config), 7);
  EXPECT_EQ(norm_epsilon_of(find_model("gpt2")), 1e-5);
  EXPECT_EQ(norm_epsilon_of(find_model("bert-base")), 1e-12);
}

TEST(ModelConfigTest, UnknownNameNamesTheNearest) {
  EXPECT_THAT([] { (void)find_model("gpt2-mni"); }, ThrowsMessage<ConfigError>(HasSubstr("did you mean 'gpt2-mini'?")));
}

TEST(ModelConfigTest, OverridesReplaceSingleFields) {
  const ModelConfig tiny = find_model("gpt2-tiny");
  ModelConfig expected = tiny;
  expected.layers = 6;
  EXPECT_EQ(with_overrides(tiny, {.layers = 6}), expected);

  expected = tiny;
  expected.hidden = 96;
  expected.feed_forward = 384;
  expected.heads = 8;
  EXPECT_EQ(with_overrides(tiny, {.hidden = 96, .heads = 8}), expected);

  expected = tiny;
  expected.vocabulary = 1000;
  expected.tied = true;
  EXPECT_EQ(with_overrides(tiny, {.vocabulary = 1000, .tied = true}), expected);
  EXPECT_EQ(with_overrides(tiny, {}), tiny);
}

TEST(ModelConfigTest, OverridesKeepLlamasHeadsUnlessTheyReplaceThem) {
  const ModelConfig tiny = find_model("llama-tiny");
  const ModelConfig wide = with_overrides(tiny, {.hidden = 96});
  EXPECT_EQ(wide.feed_forward, 288);
  EXPECT_EQ(head_size_of(wide), 24);
  EXPECT_EQ(key_value_heads_of(with_overrides(tiny, {.key_value_heads = 4})), 4);
  EXPECT_THAT([&] { (void)with_overrides(tiny, {.key_value_heads = 3}); },
              ThrowsMessage<ConfigError>(HasSubstr("3 key_value_heads do not divide the 4 heads")));
  EXPECT_THAT([] { (void)with_overrides(find_model("gpt2-tiny"), {.key_value_heads = 2}); },
              ThrowsMessage<ConfigError>(HasSubstr("belong to family 'llama', not 'gpt2'")));
}

TEST(ModelConfigTest, RefusesInvalidRotaryParameters) {
  const auto refusal = [](const std::function<void(ModelConfig&)>& change) -> std::string {
    ModelConfig config = find_model("llama-3.2-1b");
    change(config);
    return testing::message_of([&] { require_valid(config); }, "no error");
  };
  EXPECT_EQ(refusal([](ModelConfig& c) { c.head_size = 63; }),
            "model 'llama-3.2-1b': heads are 63 wide; rotary positions need an even width");
  EXPECT_THAT(refusal([](ModelConfig& c) { c.head_size = 1'000'000'000; }), HasSubstr("heads times head_size"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.rope_theta = std::nan(""); }), HasSubstr("rope_theta is nan"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.rope_scaling.factor = 0.5; }), HasSubstr("factor of rope_scaling is 0.5"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.rope_scaling.low_frequency_factor = 4; }),
              HasSubstr("high_frequency_factor 4 must be above low_frequency_factor 4"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.norm_epsilon = 0; }), HasSubstr("norm_epsilon is 0"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.sliding_window = 0; }), HasSubstr("sliding_window is 0"));
}

TEST(ModelConfigTest, RefusesSequencesAboveTheSlidingWindow) {
  EXPECT_NO_THROW(require_within_window(find_model("mistral-7b"), 4096));
  EXPECT_NO_THROW(require_within_window(find_model("llama-3-8b"), 8192));
  EXPECT_THAT([] { require_within_window(find_model("mistral-7b"), 4097); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("4097 tokens"), HasSubstr("sliding window of 4096"))));
}

TEST(ModelConfigTest, RefusesOverridesThatDoNotFit) {
  const ModelConfig tiny = find_model("gpt2-tiny");
  EXPECT_THAT([&] { (void)with_overrides(tiny, {.heads = 3}); },
              ThrowsMessage<ConfigError>(HasSubstr("3 heads do not divide the hidden size 64")));
  EXPECT_THROW((void)with_overrides(tiny, {.hidden = INT64_MAX}), ConfigError);
  EXPECT_THROW((void)with_overrides(tiny, {.hidden = -4}), ConfigError);
}

TEST(ModelConfigTest, RefusesEverySizeOutOfRangeByName) {
  const std::pair<const char*, std::int64_t ModelConfig::*> sizes[] = {
      {"layers", &ModelConfig::layers},         {"hidden", &ModelConfig::hidden},
      {"heads", &ModelConfig::heads},           {"feed_forward", &ModelConfig::feed_forward},
      {"vocabulary", &ModelConfig::vocabulary}, {"positions", &ModelConfig::positions}};
  for (const auto& [name, field] : sizes) {
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1'000'000'001}}) {
      ModelConfig config = find_model("bert-tiny");
      config.*field = size;
      EXPECT_THAT([&] { require_valid(config); },
                  ThrowsMessage<ConfigError>(AllOf(HasSubstr("bert-tiny"), HasSubstr(name))));
    }
  }
}

TEST(ModelConfigTest, RefusesMoreParametersThanCanBeCounted) {
  ModelConfig config = find_model("gpt2-tiny");
  config.hidden = 1'000'000'000;
  config.layers = 1'000'000;
  EXPECT_THAT([&] { require_valid(config); }, ThrowsMessage<ConfigError>(HasSubstr("parameters")));
}

}  // namespace
}  // namespace chimera
