// Words of a text, for each alternative of the patterns.

#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace chimera {
namespace {

using ::testing::ElementsAre;

template <WordPattern pattern>
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = word_end(pattern, text, start);
    EXPECT_GT(end, start) << text;
    words.push_back(text.substr(start, end - start));
    start = end;
  }
  return words;
}

const auto kGpt2 = words<WordPattern::Gpt2>;
const auto kLlama3 = words<WordPattern::Llama3>;
const auto kQwen2 = words<WordPattern::Qwen2>;

TEST(WordScannerTest, BlankBelongsToTheNextWord) {
  EXPECT_THAT(kGpt2("the cat, 12 mice"), ElementsAre("the", " cat", ",", " 12", " mice"));
  EXPECT_THAT(kLlama3("the cat, 12 mice"), ElementsAre("the", " cat", ",", " ", "12", " mice"));
}

TEST(WordScannerTest, WhiteSpaceLeavesItsLastCharacterToTheNextWord) {
  EXPECT_THAT(kGpt2("a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(kGpt2("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(kGpt2("a  \n"), ElementsAre("a", "  \n"));
  EXPECT_THAT(kGpt2("a\u2003\u2003b"), ElementsAre("a", "\u2003", "\u2003", "b"));
}

TEST(WordScannerTest, Llama3GroupsLineEnds) {
  EXPECT_THAT(kLlama3("a \n\n  b"), ElementsAre("a", " \n\n", " ", " b"));
  EXPECT_THAT(kLlama3("a;\r\n\r\nb"), ElementsAre("a", ";\r\n\r\n", "b"));
  EXPECT_THAT(kLlama3("\tx"), ElementsAre("\tx"));
}

TEST(WordScannerTest, ContractionsAreWords) {
  EXPECT_THAT(kGpt2("we'll I'D don't 'tis"), ElementsAre("we", "'ll", " I", "'", "D", " don", "'t", " '", "tis"));
  EXPECT_THAT(kLlama3("we'LL x'ſ y'RE"), ElementsAre("we", "'LL", " x", "'ſ", " y", "'RE"));
}

TEST(WordScannerTest, NumbersSplitIntoThreesOrDigits) {
  EXPECT_THAT(kGpt2("x12345"), ElementsAre("x", "12345"));
  EXPECT_THAT(kLlama3("x12345"), ElementsAre("x", "123", "45"));
  EXPECT_THAT(kQwen2("x123"), ElementsAre("x", "1", "2", "3"));
}

TEST(WordScannerTest, InvalidBytesTerminate) {
  EXPECT_THAT(kGpt2("a\xFF\xC3"), ElementsAre("a", "\xFF\xC3"));
  EXPECT_THAT(kLlama3("\xE2\x82 a"), ElementsAre("\xE2\x82", " a"));
}

}  // namespace
}  // namespace chimera
