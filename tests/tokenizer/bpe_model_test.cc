// Compares byte-pair encoding with its definition: find the best of all pairs, merge it, and repeat.

#include "tokenizer/bpe_model.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <optional>
#include <string>

namespace chimera {
namespace {

/// A vocabulary of the letters a to d and random merges of its tokens.
BpeParts random_parts() {
  BpeParts parts;
  std::vector<std::string> tokens = {"a", "b", "c", "d"};
  for (const std::string& token : tokens)
    parts.vocabulary.emplace(token, static_cast<TokenId>(parts.vocabulary.size()));
  const int merges = *rc::gen::inRange(1, 25);
  for (int i = 0; i < merges; ++i) {
    const std::string left = *rc::gen::elementOf(tokens);
    const std::string right = *rc::gen::elementOf(tokens);
    parts.merges.emplace_back(left, right);
    if (parts.vocabulary.emplace(left + right, static_cast<TokenId>(parts.vocabulary.size())).second)
      tokens.push_back(left + right);
  }
  parts.byte_level = *rc::gen::arbitrary<bool>();
  return parts;
}

TokenIds by_definition(const BpeParts& parts, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  while (true) {
    std::optional<std::pair<std::size_t, std::size_t>> best;  // rank, place
    for (std::size_t place = 0; place + 1 < symbols.size(); ++place) {
      for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {  // the last of equal merges counts
        const bool is_last = std::find(parts.merges.begin() + static_cast<std::ptrdiff_t>(rank) + 1, parts.merges.end(),
                                       parts.merges[rank]) == parts.merges.end();
        if (!is_last || parts.merges[rank] != std::pair(symbols[place], symbols[place + 1])) continue;
        if (!best || rank < best->first) best = {rank, place};
      }
    }
    if (!best) break;
    symbols[best->second] += symbols[best->second + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best->second) + 1);
  }
  TokenIds ids;
  for (const std::string& symbol : symbols) ids.push_back(parts.vocabulary.find(symbol)->second);
  return ids;
}

TEST(BpeModelTest, WordsOfAnyLengthAreMergedAsDefined) {
  EXPECT_TRUE(rc::check([] {
    const BpeParts parts = random_parts();
    const auto model = make_bpe_model(parts, "random");
    WordCache cache;
    for (const int length : {1, 2, 7, 47, 48, 49, 50, 130}) {
      const auto word = *rc::gen::container<std::string>(static_cast<std::size_t>(length), rc::gen::inRange('a', 'e'));
      TokenIds ids;
      model->encode(word, ids, cache);
      RC_ASSERT(ids == by_definition(parts, word));
      TokenIds again;
      RC_ASSERT(!cache.append(word, again) || again == ids);
    }
  }));
}

TEST(BpeModelTest, VeryLongWordTakesLessThanQuadraticTime) {
  BpeParts parts;
  parts.vocabulary = {{"a", 0}, {"aa", 1}, {"aaaa", 2}};
  parts.merges = {{"a", "a"}, {"aa", "aa"}};
  parts.byte_level = true;
  const auto model = make_bpe_model(parts, "a");
  WordCache cache;
  TokenIds ids;
  model->encode(std::string(4'000'000, 'a'), ids, cache);  // an hour if each merge examined all pairs again
  EXPECT_EQ(ids, TokenIds(1'000'000, 2));
}

}  // namespace
}  // namespace chimera
