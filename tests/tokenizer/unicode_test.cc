#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace chimera {
namespace {

TEST(UnicodeTest, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("plain, é, 漢, 😀"), std::nullopt);
  const std::pair<std::string, std::size_t> invalid[] = {
      {"ab\xFF", 2},           {"\x80", 0}, {"a\xC3", 1}, {"a\xC0\x80", 1},  // overlong
      {"\xED\xA0\x80x", 0},                                                  // a surrogate
      {"\xF4\x90\x80\x80", 0},                                               // beyond Unicode
      {"é\xE2\x82", 2},
  };
  for (const auto& [text, place] : invalid) EXPECT_EQ(find_invalid_utf8(text), place) << text;
}

TEST(UnicodeTest, ReplacesTruncatedCharactersByOneCharacter) {
  EXPECT_EQ(with_replacements("a\xE2\x82z"), "a\uFFFDz");
  EXPECT_EQ(with_replacements("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(with_replacements("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(with_replacements("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(with_replacements("é😀"), "é😀");
}

TEST(UnicodeTest, ReadsAndWritesEveryCharacter) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "x";
    append_utf8(text, c);
    std::size_t position = 1;
    EXPECT_EQ(next_character(text, position), c);
    EXPECT_EQ(position, text.size());
    EXPECT_EQ(character_before(text, text.size()), c);
  }
}

TEST(UnicodeTest, ComposesOnlyCharactersOfUnicode9) {
  EXPECT_EQ(compose("e\u0301 a\u0323\u0307"), "\u00e9 \u1ea1\u0307");
  EXPECT_EQ(decompose("\u00e9\uac01"), "e\u0301\u1100\u1161\u11A8");
  // U+11938 of Unicode 13 decomposes to U+11935 U+11930.
  EXPECT_EQ(decompose("\U00011938\u00e9"), "\U00011938e\u0301");
}

TEST(UnicodeTest, LowercasesByTheFullMapping) {
  std::string lower;
  for (const char32_t c : std::u32string(U"AzÄΣİǅ漢")) append_lower(lower, c);
  EXPECT_EQ(lower, "azäσi\u0307ǆ漢");
}

}  // namespace
}  // namespace chimera
