#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "core/error.h"
#include "model_config/config.h"

namespace chimera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kGood = R"(family = "bert"
layers = 3
hidden = 48
heads = 6
feed_forward = 100
vocabulary = 300
positions = 64
tied = true
)";

/// A model file that lives as long as the test.
class ModelFileTest : public testing::Test {
 protected:
  ~ModelFileTest() override { std::filesystem::remove(path_); }

  std::string written(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }

  /// Reads kGood with the first match of `pattern` replaced; returns the error's message.
  std::string error_of(const std::string& pattern, const std::string& replacement) {
    try {
      (void)find_model(written(std::regex_replace(kGood, std::regex(pattern), replacement)));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }

  std::string path_ =
      testing::TempDir() + "model_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
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

TEST_F(ModelFileTest, NamesUnknownFieldWithLineAndTheNearestOne) {
  EXPECT_THAT(error_of("layers", "layer"), AllOf(HasSubstr(".toml:2: "), HasSubstr("did you mean 'layers'?")));
  EXPECT_THAT(error_of("tied = true", "tied = true\ndropout = 0.1"), HasSubstr(".toml:9: unknown field 'dropout'"));
}

TEST_F(ModelFileTest, NamesEveryMissingField) {
  for (const char* field : {"family", "layers", "hidden", "heads", "feed_forward", "vocabulary", "positions", "tied"}) {
    EXPECT_THAT(error_of(std::string(field) + " = .*\n", ""), HasSubstr(std::string("'") + field + "' is missing"));
  }
}

TEST_F(ModelFileTest, NamesWrongTypesWithLine) {
  EXPECT_THAT(error_of("heads = 6", "heads = 6.0"), HasSubstr(".toml:4: field 'heads' must be an integer"));
  EXPECT_THAT(error_of("heads = 6", "heads = \"6\""), HasSubstr(".toml:4: field 'heads' must be an integer"));
  EXPECT_THAT(error_of("heads = 6", "heads = true"), HasSubstr(".toml:4: field 'heads' must be an integer"));
  EXPECT_THAT(error_of("tied = true", "tied = 1"), HasSubstr(".toml:8: field 'tied' must be true or false"));
  EXPECT_THAT(error_of("\"bert\"", "7"), HasSubstr(".toml:1: field 'family' must be"));
}

TEST_F(ModelFileTest, NamesUnknownFamily) {
  EXPECT_THAT(error_of("bert", "brt"), HasSubstr(".toml:1: unknown family 'brt'; did you mean 'bert'?"));
}

TEST_F(ModelFileTest, RefusesBadSyntaxDuplicatesAndHugeNumbersWithLine) {
  EXPECT_THAT(error_of("hidden = 48", "hidden 48"), HasSubstr(".toml:3: "));
  EXPECT_THAT(error_of("heads = 6", "layers = 6"), HasSubstr(".toml:4: "));
  EXPECT_THAT(error_of("heads = 6", "heads = 99999999999999999999"), HasSubstr(".toml:4: "));
}

TEST_F(ModelFileTest, RefusesSizesThatDoNotFitNamingTheFile) {
  EXPECT_THAT(error_of("heads = 6", "heads = 7"), AllOf(HasSubstr(path_), HasSubstr("7 heads do not divide")));
}

TEST_F(ModelFileTest, RefusesWhatIsNoSmallFile) {
  EXPECT_THAT([] { (void)find_model("absent.toml"); }, ThrowsMessage<ConfigError>(HasSubstr("'absent.toml'")));
  const std::string folder = path_ + ".folder.toml";
  std::filesystem::create_directory(folder);
  EXPECT_THROW((void)find_model(folder), ConfigError);
  std::filesystem::remove(folder);
  EXPECT_THAT([&] { (void)find_model(written(std::string(2'000'000, '#'))); },
              ThrowsMessage<ConfigError>(HasSubstr("larger than 1 MiB")));
}

}  // namespace
}  // namespace chimera
