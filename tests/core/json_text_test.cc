#include "core/json.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "core/json_value.h"
#include "support/paths.h"

namespace chimera {
namespace {

using ::testing::ThrowsMessage;

TEST(JsonTextTest, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(json_text(nlohmann::json{{"bad\xFF.json", "caf\xE9"}}), "{\"bad\uFFFD.json\":\"caf\uFFFD\"}");
  EXPECT_EQ(json_text(nlohmann::ordered_json{"\xFF"}, 0), "[\n\"\uFFFD\"\n]");
  EXPECT_EQ(json_text(nlohmann::json("\xFF"), -1, JsonEncoding::Ascii), "\"\\ufffd\"");
}

TEST(JsonTextTest, ReportsCountBytesAndFlopsInIntegers) {
  EXPECT_EQ(json_report({{"peak_bytes", 3.0}, {"seconds", 3.0}, {"flops", {{"F", 1e15}}}, {"bytes", {1.5, 2.0}}}),
            "{\n  \"peak_bytes\": 3,\n  \"seconds\": 3.0,\n  \"flops\": {\n    \"F\": 1000000000000000\n  },\n"
            "  \"bytes\": [\n    1.5,\n    2\n  ]\n}\n");
  EXPECT_EQ(json_key("tensor-parallel sums"), "tensor_parallel_sums");
  EXPECT_EQ(json_number(13) + " " + json_number(0.1), "13.0 0.1");
}

/// The library's own writers throw for such bytes.
TEST(JsonTextTest, OnlyJsonTextWritesJson) {
  for (const char* root : {"/src", "/apps", "/python"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_path(root))) {
      const std::string extension = entry.path().extension();
      if ((extension != ".cc" && extension != ".h") || entry.path().filename() == "json.cc") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);)
        EXPECT_EQ(line.find(".dump("), std::string::npos) << entry.path() << ": " << line;
    }
  }
}

TEST(JsonValueTest, ParsesAsTheLibraryDoes) {
  for (const char* text :
       {R"({"a": [1, -2, 2.5, "x", null, true, {"b": {}}, [], 18446744073709551615], "c": {"a": 1}})", "3",
        "[[[{}]], {\"a\": [{}, {\"b\": 1}, {}]}]"}) {
    EXPECT_EQ(parse_json(text, "text"), nlohmann::json::parse(text));
  }
}

TEST(JsonValueTest, NamesTheFieldThatIsGivenTwice) {
  EXPECT_THAT([] { (void)parse_json(R"([{"a": 1}, {"a": 1, "b": [0, {"c": {"a": 1, "a": 2}}]}])", "text"); },
              ThrowsMessage<ConfigError>("text: [1].b[1].c.a: the field is given twice; leave one of them out"));
}

TEST(JsonValueTest, NothingFollowsAZeroByte) {
  EXPECT_THAT([] { (void)parse_json(std::string_view("{}\0{", 4), "text"); },
              ThrowsMessage<ConfigError>("text: JSON: has a zero byte"));
}

}  // namespace
}  // namespace chimera
