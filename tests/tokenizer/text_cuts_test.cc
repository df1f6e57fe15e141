// Texts cut in two by find_cut() have the ids of the whole text.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace chimera {
namespace {

using nlohmann::json;

/// Characters of the test texts; some normalizers below map some of them to X.
const std::vector<std::string> kCharacters = {"a", "b", "e", "\u0301", "\u00e9", "!", " ", "\n", "1", ">", "\u6f22"};

/// A BPE that merges every two characters, so that the ids show word boundaries. It does not merge a blank (or its
/// sign) before `apart`.
json tokenizer_file(const std::string& normalizer, const std::string& pre_tokenizer, const std::string& apart) {
  std::vector<std::string> characters = kCharacters;
  characters.insert(characters.end(), {"X", "\u2581"});
  json vocabulary = {{"<unk>", 0}};
  for (const std::string& character : characters) vocabulary[character] = vocabulary.size();
  json merges = json::array();
  for (const std::string& left : characters) {
    for (const std::string& right : characters) {
      if ((right == " " || right == "\u2581") && apart.find(left) != apart.npos) continue;
      merges.push_back({left, right});
      vocabulary[left + right] = vocabulary.size();
    }
  }
  json file = {{"model", {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocabulary}, {"merges", merges}}},
               {"normalizer", read_json(normalizer)},
               {"pre_tokenizer", read_json(pre_tokenizer)}};
  const auto next = static_cast<int>(vocabulary.size());
  file["added_tokens"] = {{{"id", next}, {"content", "</s>"}, {"special", true}},
                          {{"id", next + 1}, {"content", "b1b"}, {"normalized", true}}};
  return file;
}

std::string random_text(std::mt19937& random) {
  std::string text;
  const std::size_t length = random() % 9 + 3;
  for (std::size_t i = 0; i < length; ++i) {
    const std::size_t dice = random() % 20;
    if (dice < 6) {
      text += ' ';
    } else {
      text += dice < 8 ? "</s>" : dice < 9 ? "b1b" : kCharacters[random() % kCharacters.size()];
    }
  }
  return text;
}

/// Returns true if every cut keeps the ids. Adds the number of cuts to `cuts`.
bool expect_cuts_keep_ids(const Tokenizer& tokenizer, const std::string& text, int& cuts) {
  const TokenIds whole = encode(tokenizer, text);
  const auto encoder = tokenizer.make_encoder();
  std::size_t last = 0;
  for (std::size_t end = 1; end <= text.size(); ++end) {
    const std::size_t cut = tokenizer.find_cut(std::string_view(text).substr(0, end), 1);
    if (cut == 0 || cut == last) continue;
    last = cut;
    TokenIds parts;
    encoder->encode(std::string_view(text).substr(0, cut), parts);
    encoder->encode(std::string_view(text).substr(cut), parts, true);
    EXPECT_EQ(parts, whole) << json(text) << " cut at " << cut;
    if (parts != whole) return false;
    ++cuts;
  }
  return true;
}

constexpr const char* kNone = "null";
constexpr const char* kGpt2Cutter =
    R"({"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}})";
constexpr const char* kSigns = R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"})";
constexpr const char* kUnsplitSigns =
    R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": false})";
constexpr const char* kDigitsThenSigns =
    R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}]})";
constexpr const char* kBertCutter = R"({"type": "BertPreTokenizer"})";
constexpr const char* kBert = R"({"type": "BertNormalizer"})";
constexpr const char* kPrependThenSigns =
    R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})";

std::string replacing(const std::string& from, const std::string& to) {
  return json_text(json({{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}}));
}

std::string sequence(const char* list, const std::string& first, const std::string& second) {
  return json_text(json({{"type", "Sequence"}, {list, {read_json(first), read_json(second)}}}));
}

struct Pipeline {
  std::string normalizer;
  std::string pre_tokenizer;
  bool cuts;
};

std::vector<Pipeline> pipelines() {
  const std::string signs_for_blanks = replacing(" ", "\u2581");
  const std::string signs_then_words = sequence("pretokenizers", kUnsplitSigns, kGpt2Cutter);
  return {
      {kNone, kGpt2Cutter, true},
      {R"({"type": "NFC"})", kGpt2Cutter, true},
      {R"({"type": "NFD"})", kGpt2Cutter, true},
      {R"({"type": "Prepend", "prepend": "a"})", kGpt2Cutter, true},
      {kNone, kSigns, true},
      {kNone, kDigitsThenSigns, true},
      {kNone, kBertCutter, true},
      {kBert, kBertCutter, true},
      {replacing("!", "X"), kGpt2Cutter, true},
      {kNone, kUnsplitSigns, true},
      {kNone, kNone, true},
      {kPrependThenSigns, kNone, true},
      {signs_for_blanks, kNone, true},
      // A normalizer that matches across a blank, or changes its neighbors.
      {replacing("a b", "X"), kGpt2Cutter, false},
      {replacing("! a", "X"), kBertCutter, false},
      {replacing("a b", "X"), kNone, false},
      {replacing(" a", "X"), kGpt2Cutter, false},
      {replacing("b", ""), kGpt2Cutter, false},
      {replacing("b", "\n"), kGpt2Cutter, false},
      {signs_for_blanks, kGpt2Cutter, false},
      {signs_for_blanks, kBertCutter, false},
      {sequence("normalizers", signs_for_blanks, replacing("a\u2581", "X")), kNone, false},
      {replacing("ab", "X"), kNone, false},
      {R"({"type": "NFC"})", kNone, false},
      {kBert, kGpt2Cutter, false},
      {kNone, signs_then_words, false},
  };
}

TEST(TextCutsTest, EveryCutKeepsTheIdsOfTheWhole) {
  for (const Pipeline& pipeline : pipelines()) {
    SCOPED_TRACE(pipeline.normalizer + " " + pipeline.pre_tokenizer);
    const auto tokenizer =
        tokenizer_from_json(json_text(tokenizer_file(pipeline.normalizer, pipeline.pre_tokenizer, "!ab>")), "t.json");
    std::mt19937 random(7);
    int cuts = 0;
    bool equal = true;
    for (int i = 0; i < 500 && equal; ++i) equal = expect_cuts_keep_ids(*tokenizer, random_text(random), cuts);
    EXPECT_TRUE(!equal || (cuts > 0) == pipeline.cuts) << cuts;
  }
}

TEST(TextCutsTest, NoCutAfterATokenBeforeAPiece) {
  const auto tokenizer = tokenizer_from_json(json_text(tokenizer_file(kPrependThenSigns, kNone, "!ab>")), "t.json");
  EXPECT_EQ(tokenizer->find_cut("a b</s> a", 1), 1U);
  EXPECT_EQ(tokenizer->find_cut("</s> a", 1), 0U);
}

}  // namespace
}  // namespace chimera
