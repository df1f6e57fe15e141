// Ids, templates and texts equal those of the Python package tokenizers (fixtures of tools/make_tokenizer_fixtures.py).

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/json.h"
#include "support/paths.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace chimera {
namespace {

using nlohmann::json;

json fixture(const std::string& name) {
  std::ifstream file(testing::source_path("/tests/fixtures/tokenizers/") + name + ".json");
  return json::parse(file);
}

class TokenizerFixtureTest : public ::testing::TestWithParam<const char*> {
 protected:
  json fixture_ = fixture(GetParam());
  std::unique_ptr<Tokenizer> tokenizer_ = tokenizer_from_json(json_text(fixture_["tokenizer"]), GetParam());
};

TEST_P(TokenizerFixtureTest, IdsAreThoseOfTokenizers) {
  ASSERT_GT(fixture_["cases"].size(), 100U);
  const auto encoder = tokenizer_->make_encoder();
  for (int round = 0; round < 2; ++round) {  // the second time from the encoder's cache
    for (const json& one : fixture_["cases"]) {
      TokenIds ids;
      encoder->encode(one["text"].get<std::string>(), ids);
      EXPECT_EQ(ids, one["ids"].get<TokenIds>()) << one["text"];
    }
  }
}

TEST_P(TokenizerFixtureTest, TextsAreThoseOfTokenizers) {
  for (const json& one : fixture_["cases"]) {
    const auto ids = one["ids"].get<TokenIds>();
    EXPECT_EQ(tokenizer_->decode(ids), one["decoded"].get<std::string>()) << one["text"];
    EXPECT_EQ(tokenizer_->decode(ids, true), one["with_special"].get<std::string>()) << one["text"];
  }
}

TEST_P(TokenizerFixtureTest, TemplatesAreThoseOfTokenizers) {
  for (const json& one : fixture_["cases"]) {
    const auto first = one["ids"].get<TokenIds>();
    EXPECT_EQ(json(tokenizer_->with_special(first)), one["single"][0]) << one["text"];
  }
}

TEST_P(TokenizerFixtureTest, AStreamIsTheWholeText) {
  for (const json& one : fixture_["cases"]) {
    const auto ids = one["ids"].get<TokenIds>();
    StreamDecoder stream(*tokenizer_);
    std::string text;
    for (const TokenId id : ids) {
      text += stream.push(id);
      EXPECT_TRUE(one["decoded"].get<std::string>().starts_with(text)) << one["text"];
    }
    EXPECT_EQ(text + stream.finish(), one["decoded"].get<std::string>()) << one["text"];
  }
}

TEST_P(TokenizerFixtureTest, CutTextHasTheIdsOfTheWhole) {
  json file = fixture_["tokenizer"];
  // Tokens that depend on adjacent characters make every place unsafe.
  for (json& token : file["added_tokens"]) token["lstrip"] = token["rstrip"] = token["single_word"] = false;
  const auto tokenizer = tokenizer_from_json(json_text(file), GetParam());
  std::string all;
  for (int round = 0; round < 4; ++round) {
    for (const json& one : fixture_["cases"]) all += one["text"].get<std::string>() + " text and";
  }
  const auto encoder = tokenizer->make_encoder();
  constexpr std::size_t kPart = 1000;
  TokenIds parts;
  int cuts = 0;
  for (std::size_t start = 0; start < all.size(); ++cuts) {
    const std::string_view rest = std::string_view(all).substr(start);
    std::size_t cut = rest.size() <= kPart ? 0 : tokenizer->find_cut(rest.substr(0, kPart), 1);
    if (cut == 0) cut = rest.size();
    encoder->encode(rest.substr(0, cut), parts, start > 0);
    start += cut;
  }
  EXPECT_GT(cuts, 10);
  EXPECT_EQ(parts, encode(*tokenizer, all));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerFixtureTest,
                         ::testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2", "bert", "bert_cased",
                                           "llama2", "few_bytes", "no_bytes", "mistral", "metaspace_always",
                                           "digits_metaspace"),
                         [](const auto& kind) { return std::string(kind.param); });

/// Merges as texts, as in the oracle's output.
std::vector<std::pair<std::string, std::string>> merges_of(const TrainedBpe& trained) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const auto& [left, right] : trained.merges)
    merges.emplace_back(trained.tokens[static_cast<std::size_t>(left)],
                        trained.tokens[static_cast<std::size_t>(right)]);
  return merges;
}

TEST(BpeTrainerTest, MergesAreThoseOfTokenizers) {
  const json training_cases = fixture("training")["cases"];
  for (const json& one : training_cases) {
    BpeTraining training;
    training.vocabulary = one["options"]["vocab_size"];
    training.special_tokens = one["options"]["special_tokens"].get<std::vector<std::string>>();
    training.min_frequency = one["options"].value("min_frequency", 0);
    WordCounts words;
    words.add(one["text"].get<std::string>());
    const TrainedBpe trained = train_bpe(words, training);
    EXPECT_EQ(merges_of(trained), (one["merges"].get<std::vector<std::pair<std::string, std::string>>>()));
    ASSERT_EQ(trained.tokens.size(), one["vocab"].size());
    for (std::size_t id = 0; id < trained.tokens.size(); ++id) EXPECT_EQ(one["vocab"][trained.tokens[id]], id);
  }
}

TEST(BpeTrainerTest, SpecialTokenOfAByteSymbolIsThatBytesToken) {
  WordCounts words;
  words.add("abab ab");
  const TrainedBpe trained = train_bpe(words, {.vocabulary = 258, .special_tokens = {"a", "<s>"}});
  EXPECT_EQ(trained.tokens.size(), 258U) << "two special tokens, 255 other bytes, one merge";
  EXPECT_EQ(merges_of(trained), (std::vector<std::pair<std::string, std::string>>{{"a", "b"}}));
}

TEST(BpeTrainerTest, OutputReadsBackAndRestoresTheText) {
  const std::string text = fixture("training")["cases"][0]["text"];
  WordCounts words;
  words.add(text);
  const TrainedBpe trained = train_bpe(words, {.vocabulary = 320});
  const auto tokenizer = tokenizer_from_json(to_tokenizer_json(trained), "trained");
  EXPECT_EQ(tokenizer->vocabulary_size(), 320);
  EXPECT_EQ(tokenizer->end_of_document(), 0);
  const TokenIds ids = encode(*tokenizer, text);
  EXPECT_LT(ids.size(), text.size() / 2);
  EXPECT_EQ(tokenizer->decode(ids), text);
}

}  // namespace
}  // namespace chimera
