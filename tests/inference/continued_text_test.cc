#include "inference/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "support/paths.h"
#include "tokenizer/tokenizer_json.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

struct Said {
  std::vector<std::string> pieces;  // a piece per token, then the rest
  bool stopped = false;
};

Said say(const Tokenizer& tokenizer, const std::string& words, std::vector<std::string> stops) {
  ContinuedText text(tokenizer, std::move(stops));
  Said said;
  for (const TokenId id : encode(tokenizer, words)) said.pieces.push_back(text.push(id));
  said.pieces.push_back(text.finish());
  said.stopped = text.has_stopped();
  return said;
}

const std::unique_ptr<Tokenizer> kBytes = make_byte_tokenizer();

TEST(ContinuedTextTest, HoldsBackIncompleteCharacters) {
  EXPECT_THAT(say(*kBytes, "a\xC3\xB1z", {}).pieces, ElementsAre("a", "", "\xC3\xB1", "z", ""));
  EXPECT_THAT(say(*kBytes, "a\xC3", {}).pieces, ElementsAre("a", "", "\xEF\xBF\xBD"));
}

TEST(ContinuedTextTest, EndsBeforeAStopText) {
  const Said said = say(*kBytes, "one.\n\ntwo", {"\n\n"});
  EXPECT_TRUE(said.stopped);
  EXPECT_THAT(said.pieces, ElementsAre("o", "n", "e", ".", "", "", "", "", "", ""));
}

TEST(ContinuedTextTest, HoldsBackAPossibleStopText) {
  EXPECT_THAT(say(*kBytes, "aabac", {"aabb", "ac"}).pieces, ElementsAre("", "", "", "aab", "", ""));
  const Said other = say(*kBytes, "aabad", {"aabb", "ac"});
  EXPECT_THAT(other.pieces, ElementsAre("", "", "", "aab", "ad", ""));
  EXPECT_FALSE(other.stopped);
  EXPECT_THAT(say(*kBytes, "xa", {"ab"}).pieces, ElementsAre("x", "", "a")) << "no token follows";
}

TEST(ContinuedTextTest, StopsAtTheFirstOfSeveralTexts) {
  const std::string whole = "one two three";
  for (const auto& [stops, expected] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"three", "two"}, "one "}, {{"wo th", "o t"}, "one tw"}, {{"e", "on"}, ""}, {{"four"}, whole}}) {
    std::string text;
    for (const std::string& piece : say(*kBytes, whole, stops).pieces) text += piece;
    EXPECT_EQ(text, expected);
  }
}

TEST(ContinuedTextTest, StopsInTheMiddleOfTokens) {
  std::ifstream file(testing::source_path("/tests/fixtures/tokenizers/gpt2.json"));
  const auto tokenizer = tokenizer_from_json(json_text(nlohmann::json::parse(file)["tokenizer"]), "gpt2");
  const std::string words = "the king went to his house and the people went to the king";
  ASSERT_LT(encode(*tokenizer, words).size(), words.size()) << "some tokens have several characters";
  for (std::size_t first = 0; first + 5 < words.size(); ++first) {
    const std::string stop = words.substr(first, 5);
    std::string text;
    const Said said = say(*tokenizer, words, {stop});
    for (const std::string& piece : said.pieces) text += piece;
    EXPECT_EQ(text, words.substr(0, words.find(stop))) << stop;
    EXPECT_TRUE(said.stopped);
  }
}

}  // namespace
}  // namespace chimera
