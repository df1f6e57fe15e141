#include "model_config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ModelConfigTest, EveryPresetIsValidAndFoundByItsName) {
  EXPECT_EQ(preset_names().size(), 9U);
  for (const std::string& name : preset_names()) {
    const ModelConfig config = find_model(name);
    EXPECT_EQ(config.name, name);
    EXPECT_NO_THROW(validate(config)) << name;
    EXPECT_EQ(config.feed_forward, 4 * config.hidden) << name;
    EXPECT_EQ(config.tied, name == "gpt2") << name;
    EXPECT_EQ(config.family, name.starts_with("bert") ? Family::Bert : Family::Gpt2) << name;
  }
}

TEST(ModelConfigTest, SmallPresetsReadBytes) {
  EXPECT_EQ(find_model("gpt2-tiny").vocabulary, 256);
  EXPECT_EQ(find_model("gpt2-mini").vocabulary, 256);
  EXPECT_EQ(find_model("bert-tiny").vocabulary, 260);
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
      EXPECT_THAT([&] { validate(config); },
                  ThrowsMessage<ConfigError>(AllOf(HasSubstr("bert-tiny"), HasSubstr(name))));
    }
  }
}

TEST(ModelConfigTest, RefusesMoreParametersThanCanBeCounted) {
  ModelConfig config = find_model("gpt2-tiny");
  config.hidden = 1'000'000'000;
  config.layers = 1'000'000;
  EXPECT_THAT([&] { validate(config); }, ThrowsMessage<ConfigError>(HasSubstr("parameters")));
}

}  // namespace
}  // namespace chimera
