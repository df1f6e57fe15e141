#include "hugging_face/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "hugging_face/config_json.h"
#include "safetensors/safetensors_file.h"
#include "support/message_of.h"
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

/// Of a folder with this eos_token_id in config.json and, if given, this generation_config.json.
GenerationConfig config_of(const json& config, const std::optional<std::string>& generation) {
  const testing::Scratch scratch;
  json text = read_json(to_config_json(kModel, ElementType::F32));
  text["eos_token_id"] = config;
  scratch.write(kConfigName, json_text(text));
  const SafetensorsLayout layout = lay_out(exported_tensors(kModel, ElementType::F32));
  std::string weights = layout.head;
  weights.resize(layout.file_bytes, '\0');
  scratch.write(kWeightsName, weights);
  if (generation) scratch.write(kGenerationConfigName, *generation);
  return read_generation_config(ModelFolder(scratch.path("")));
}

std::vector<std::int64_t> tokens_of(const json& config, const std::optional<std::string>& generation) {
  return config_of(config, generation).end_tokens;
}

std::string refusal(const std::string& generation) {
  return testing::message_of([&] { (void)tokens_of(nullptr, generation); });
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
  for (const char* wrong : {"-1", "1.5", "\"end\"", "[3, null]", "[[3]]", "2147483648", "true", "1e400"})
    EXPECT_THAT(refusal(std::string(R"({"eos_token_id": )") + wrong + "}"), HasSubstr("generation_config.json: "))
        << wrong;
}

TEST(GenerationConfigTest, ReadsRulesOfScores) {
  const ScoreRules rules = config_of(nullptr, R"({"repetition_penalty": 1.3, "no_repeat_ngram_size": 3,
    "bad_words_ids": [[1], [2, 3]], "min_length": 4, "min_new_tokens": 5, "suppress_tokens": [6, 7],
    "begin_suppress_tokens": [8]})")
                               .rules;
  EXPECT_EQ(rules.repetition_penalty, 1.3);
  EXPECT_EQ(rules.no_repeat_ngram_size, 3);
  EXPECT_THAT(rules.bad_words_ids, ElementsAre(ElementsAre(1), ElementsAre(2, 3)));
  EXPECT_EQ(rules.min_length, 4);
  EXPECT_EQ(rules.min_new_tokens, 5);
  EXPECT_THAT(rules.suppress_tokens, ElementsAre(6, 7));
  EXPECT_THAT(rules.begin_suppress_tokens, ElementsAre(8));
  EXPECT_EQ(config_of(nullptr, R"({"repetition_penalty": null})").rules.repetition_penalty, 1);
}

TEST(GenerationConfigTest, RejectsInvalidRules) {
  EXPECT_THAT(refusal(R"({"repetition_penalty": 0})"), HasSubstr("repetition_penalty must be a number above 0"));
  EXPECT_THAT(refusal(R"({"min_new_tokens": -1})"), HasSubstr("min_new_tokens must be a whole number, at least 0"));
  for (const char* wrong : {"[1]", "[[]]", "7", R"([["a"]])"})
    EXPECT_THAT(refusal(std::string(R"({"bad_words_ids": )") + wrong + "}"), HasSubstr("bad_words_ids must be"))
        << wrong;
}

TEST(GenerationConfigTest, NamesFieldsThatAreIgnored) {
  EXPECT_THAT(config_of(nullptr, R"({"num_beams": 4, "stop_strings": ["x"], "temperature": 0.7})").ignored,
              ElementsAre("stop_strings", "num_beams"));
  EXPECT_THAT(config_of(nullptr, R"({"encoder_no_repeat_ngram_size": 2})").ignored,
              ElementsAre("encoder_no_repeat_ngram_size"));
  EXPECT_THAT(config_of(nullptr, R"({"num_beams": 1, "guidance_scale": 1.0, "stop_strings": null,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0})")
                  .ignored,
              IsEmpty());
}

}  // namespace
}  // namespace chimera
