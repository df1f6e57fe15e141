#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "core/error.h"
#include "model_config/config.h"
#include "support/message_of.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

const std::string kGood = R"(family = "bert"
layers = 3
hidden = 48
heads = 6
feed_forward = 100
vocabulary = 300
positions = 64
tied = true
)";

/// A model file that is removed after the test.
class ModelFileTest : public ::testing::Test {
 protected:
  ~ModelFileTest() override { std::filesystem::remove(path_); }

  std::string written(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }

  /// Reads kGood with each match of `pattern` replaced; returns the error message.
  std::string error_of(const std::string& pattern, const std::string& replacement) {
    return error_of(kGood, pattern, replacement);
  }

  std::string error_of(const std::string& good, const std::string& pattern, const std::string& replacement) {
    return testing::message_of(
        [&] { (void)find_model(written(std::regex_replace(good, std::regex(pattern), replacement))); }, "no error");
  }

  std::string path_ =
      ::testing::TempDir() + "model_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
};

TEST_F(ModelFileTest, GivesEveryField) {
  const ModelConfig expected{.name = "model_GivesEveryField",
                             .family = Family::Bert,
                             .layers = 3,
                             .hidden = 48,
                             .heads = 6,
                             .feed_forward = 100,
                             .vocabulary = 300,
                             .positions = 64,
                             .tied = true};
  EXPECT_EQ(find_model(written(kGood)), expected);
}

const std::string kGoodLlama = R"(family = "llama"
layers = 3
hidden = 48
heads = 4
feed_forward = 80
vocabulary = 300
positions = 64
tied = false
norm_epsilon = 1e-5
key_value_heads = 2
head_size = 20
sliding_window = 32
rope_theta = 500_000
attention_bias = "qkv"
feed_forward_bias = true
query_key_norm = true

[rope_scaling]
type = "llama3"
factor = 32
low_frequency_factor = 1.0
high_frequency_factor = 4.0
original_positions = 32
)";

TEST_F(ModelFileTest, GivesLlamasFields) {
  ModelConfig expected{.name = "model_GivesLlamasFields",
                       .family = Family::Llama,
                       .layers = 3,
                       .hidden = 48,
                       .heads = 4,
                       .feed_forward = 80,
                       .vocabulary = 300,
                       .positions = 64};
  EXPECT_EQ(find_model(written(kGoodLlama.substr(0, kGoodLlama.find("norm_epsilon")))), expected);
  expected.norm_epsilon = 1e-5;
  expected.key_value_heads = 2;
  expected.head_size = 20;
  expected.sliding_window = 32;
  expected.rope_theta = 5e5;
  expected.rope_scaling = {RopeScalingType::Llama3, 32, 1, 4, 32};
  expected.attention_bias = AttentionBias::QueryKeyValue;
  expected.feed_forward_bias = expected.query_key_norm = true;
  EXPECT_EQ(find_model(written(kGoodLlama)), expected);
}

TEST_F(ModelFileTest, NamesWhatIsWrongInLlamasFields) {
  EXPECT_THAT(error_of("\"bert\"", "\"bert\"\nrope_theta = 1e4"),
              HasSubstr(".toml: top level: unknown field 'rope_theta'"));
  const auto llama_error = [this](const std::string& pattern, const std::string& replacement) {
    return error_of(kGoodLlama, pattern, replacement);
  };
  EXPECT_THAT(llama_error("\"llama3\"", "\"lama3\""),
              HasSubstr(".toml: rope_scaling.type: unknown type 'lama3'; did you mean 'llama3'?"));
  EXPECT_THAT(llama_error("\"llama3\"", "\"linear\""),
              HasSubstr(".toml: rope_scaling: unknown field 'high_frequency_factor'; known: type, factor"));
  EXPECT_THAT(llama_error("factor = 32\n", ""), HasSubstr("field 'factor' is missing"));
  EXPECT_THAT(llama_error("\"qkv\"", "true"), HasSubstr(".toml: attention_bias: expected a text, found boolean"));
  EXPECT_THAT(llama_error("500_000", "\"large\""), HasSubstr(".toml: rope_theta: expected a number, found string"));
  const std::size_t table = kGoodLlama.find("[rope_scaling]");
  EXPECT_THAT(error_of(kGoodLlama.substr(0, table) + "rope_scaling = 2\n", "", ""),
              HasSubstr(".toml: rope_scaling: expected an object, found number"));
}

TEST_F(ModelFileTest, NamesUnknownFieldAndTheNearestOne) {
  EXPECT_THAT(error_of("layers", "layer"),
              HasSubstr(".toml: top level: unknown field 'layer'; did you mean 'layers'?"));
  EXPECT_THAT(error_of("tied = true", "tied = true\ndropout = 0.1"),
              HasSubstr(".toml: top level: unknown field 'dropout'"));
}

TEST_F(ModelFileTest, NamesEveryMissingField) {
  for (const char* field : {"family", "layers", "hidden", "heads", "feed_forward", "vocabulary", "positions", "tied"})
    EXPECT_THAT(error_of(std::string(field) + " = .*\n", ""), HasSubstr(std::string("'") + field + "' is missing"));
}

TEST_F(ModelFileTest, NamesWrongTypesWithTheirField) {
  EXPECT_THAT(error_of("heads = 6", "heads = 6.5"), HasSubstr(".toml: heads: expected a whole number"));
  EXPECT_THAT(error_of("heads = 6", "heads = \"6\""), HasSubstr(".toml: heads: expected a number, found string"));
  EXPECT_THAT(error_of("heads = 6", "heads = true"), HasSubstr(".toml: heads: expected a number, found boolean"));
  EXPECT_THAT(error_of("tied = true", "tied = 1"), HasSubstr(".toml: tied: expected true or false, found number"));
  EXPECT_THAT(error_of("\"bert\"", "7"), HasSubstr(".toml: family: expected a text, found number"));
}

TEST_F(ModelFileTest, NamesUnknownFamily) {
  EXPECT_THAT(error_of("bert", "brt"), HasSubstr(".toml: family: unknown family 'brt'; did you mean 'bert'?"));
}

TEST_F(ModelFileTest, RefusesBadSyntaxDuplicatesAndHugeNumbersWithLine) {
  EXPECT_THAT(error_of("hidden = 48", "hidden 48"), HasSubstr(".toml:3: "));
  EXPECT_THAT(error_of("heads = 6", "layers = 6"), HasSubstr(".toml:4: "));
  EXPECT_THAT(error_of("heads = 6", "heads = 99999999999999999999"), HasSubstr(".toml:4: "));
}

TEST_F(ModelFileTest, QuotesForeignTextOnOneLine) {
  EXPECT_THAT(error_of("layers", "\"lay\\ners\""), HasSubstr(".toml: top level: unknown field 'lay\\x0aers'"));
  EXPECT_THAT(error_of("hidden = 48", "hidden = \x7f"), AllOf(HasSubstr(".toml:3: "), Not(HasSubstr("\x7f"))));
}

TEST_F(ModelFileTest, RefusesSizesThatDoNotFitNamingTheFile) {
  EXPECT_THAT(error_of("heads = 6", "heads = 7"), AllOf(HasSubstr(path_), HasSubstr("7 heads do not divide")));
}

TEST_F(ModelFileTest, RefusesAnythingButASmallFile) {
  EXPECT_THAT([] { (void)find_model("absent.toml"); },
              ThrowsMessage<ConfigError>(HasSubstr("absent.toml: cannot be read")));
  const std::string folder = path_ + ".folder.toml";
  std::filesystem::create_directory(folder);
  EXPECT_THROW((void)find_model(folder), ConfigError);
  std::filesystem::remove(folder);
  EXPECT_THAT([&] { (void)find_model(written(std::string(2'000'000, '#'))); },
              ThrowsMessage<ConfigError>(HasSubstr("is longer than 1048576 bytes")));
}

}  // namespace
}  // namespace chimera
