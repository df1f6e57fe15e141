#include "render/encoding.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

TEST(EncodingTest, Base64MatchesTheRfc) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xFB\xFF"), "+/8=");
}

TEST(EncodingTest, ColumnsTakeTheNarrowestType) {
  EXPECT_EQ(column(std::vector<std::uint32_t>{})["type"], "u8");
  EXPECT_EQ(column(std::vector<std::uint32_t>{1, 255})["type"], "u8");
  EXPECT_EQ(column(std::vector<std::uint32_t>{1, 256})["type"], "u16");
  EXPECT_EQ(column(std::vector<std::uint32_t>{1, 256})["data"], base64(std::string_view("\1\0\0\1", 4)));
  EXPECT_EQ(column(std::vector<std::uint32_t>{65536})["type"], "u32");
  EXPECT_EQ(column(std::vector<float>{1})["data"], base64(std::string_view("\0\0\x80\x3F", 4)));
}

TEST(EncodingTest, MarkupIsEscaped) {
  EXPECT_EQ(escape_markup("a<b> & \"c\" d'"), "a&lt;b&gt; &amp; &quot;c&quot; d'");
  EXPECT_EQ(escape_markup("2\xC2\xB5s"), "2\xC2\xB5s");
}

TEST(EncodingTest, ReplacesInvalidXmlCharacters) {
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(escape_markup(std::string_view("a\0b", 3)), "a" + replaced + "b");
  EXPECT_EQ(escape_markup("\x1B[31m"), replaced + "[31m");
  EXPECT_EQ(escape_markup("\xFF"), replaced);
  EXPECT_EQ(escape_markup("\xEF\xBF\xBE!"), replaced + "!");
}

}  // namespace
}  // namespace chimera
