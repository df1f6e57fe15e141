#include "hugging_face/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "hugging_face/config_json.h"
#include "safetensors/safetensors_layout.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ModelConfig kModel = {.name = "small",
                            .layers = 1,
                            .hidden = 8,
                            .heads = 2,
                            .feed_forward = 12,
                            .vocabulary = 16,
                            .positions = 10,
                            .tied = true};

/// End-of-text ids of a folder with these values of eos_token_id in config.json and, if given, generation_config.json.
std::vector<std::int64_t> tokens_of(const json& config, const std::optional<std::string>& generation) {
  const testing::Scratch scratch;
  json text = read_json(to_config_json(kModel, ElementType::F32));
  text["eos_token_id"] = config;
  scratch.write(kConfigName, json_text(text));
  const SafetensorsLayout layout = lay_out(exported_tensors(kModel, ElementType::F32));
  std::string weights = layout.head;
  weights.resize(layout.file_bytes, '\0');
  scratch.write(kWeightsName, weights);
  if (generation) scratch.write(kGenerationConfigName, *generation);
  return end_tokens(ModelFolder(scratch.path("")));
}

std::string refusal(const std::string& generation) {
  try {
    (void)tokens_of(nullptr, generation);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(GenerationConfigTest, ReadsANumberOrAList) {
  EXPECT_THAT(tokens_of(nullptr, R"({"eos_token_id": 7})"), ElementsAre(7));
  EXPECT_THAT(tokens_of(nullptr, R"({"eos_token_id": [128001, 3]})"), ElementsAre(128001, 3));
  EXPECT_THAT(tokens_of(5, std::nullopt), ElementsAre(5));
  EXPECT_THAT(tokens_of(json::array({1, 2}), std::nullopt), ElementsAre(1, 2));
}

TEST(GenerationConfigTest, FallsBackToConfigJson) {
  EXPECT_THAT(tokens_of(5, R"({"eos_token_id": 7})"), ElementsAre(7));
  EXPECT_THAT(tokens_of(5, R"({"eos_token_id": null})"), IsEmpty());
  EXPECT_THAT(tokens_of(5, R"({"bos_token_id": 7})"), IsEmpty());
  EXPECT_THAT(tokens_of(nullptr, "{}"), IsEmpty());
  EXPECT_THAT(tokens_of(nullptr, std::nullopt), IsEmpty());
}

TEST(GenerationConfigTest, RejectsInvalidTokens) {
  EXPECT_THAT(refusal("[1]"), HasSubstr("generation_config.json: is not a JSON object"));
  EXPECT_THAT(refusal("{"), HasSubstr("is not a JSON object"));
  for (const char* wrong : {"-1", "1.5", "\"end\"", "[3, null]", "[[3]]", "2147483648", "true", "1e400"}) {
    EXPECT_THAT(refusal(std::string(R"({"eos_token_id": )") + wrong + "}"), HasSubstr("generation_config.json: "))
        << wrong;
  }
}

}  // namespace
}  // namespace chimera
