#include "core/json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <ctime>
#include "core/json_value.h"
#include "support/paths.h"

namespace chimera {
namespace {

TEST(JsonTextTest, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(json_text(nlohmann::json{{"bad\xFF.json", "caf\xE9"}}), "{\"bad\uFFFD.json\":\"caf\uFFFD\"}");
  EXPECT_EQ(json_text(nlohmann::ordered_json{"\xFF"}, 0), "[\n\"\uFFFD\"\n]");
  EXPECT_EQ(json_text(nlohmann::json("\xFF"), -1, JsonEncoding::Ascii), "\"\\ufffd\"");
}

/// The library's own writers throw for such bytes.
TEST(JsonTextTest, OnlyJsonTextWritesJson) {
  for (const char* root : {"/src", "/apps", "/python"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_path(root))) {
      const std::string extension = entry.path().extension();
      if ((extension != ".cc" && extension != ".h") || entry.path().filename() == "json.cc") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        EXPECT_EQ(line.find(".dump("), std::string::npos) << entry.path() << ": " << line;
      }
    }
  }
}

TEST(JsonValueTest, TimeToParseGrowsWithTheLengthOnly) {
  std::string text = "[";
  for (int i = 0; i < 200'000; ++i) text += R"({"a":1},)";
  const std::clock_t start = std::clock();
  EXPECT_EQ(parse_json(text + "0]", "text").size(), 200'001U);
  EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC) << "20 s if each object scans the array";
}

}  // namespace
}  // namespace chimera
