#pragma once

// Byte-pair encoding: a word begins as a sequence of characters or bytes, and the pair with the lowest rank is merged
// until no pair has a merge (Sennrich, Haddow and Birch, ACL 2016; order of merges as in tokenizers). Short words
// search all pairs for each merge; long ones use a queue.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tokenizer/word_cache.h"

namespace chimera {

struct Merge {
  std::uint32_t rank = 0;  ///< lower ranks are merged first
  TokenId id = 0;
};

/// Open-addressing hash table, at most half full.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges) {
    std::size_t size = 16;
    while (size < 2 * merges) size *= 2;
    entries_.resize(size);
  }

  void insert(TokenId left, TokenId right, Merge merge) {
    Entry& entry = entries_[place_of(key_of(left, right))];
    entry = {key_of(left, right), merge};
  }

  /// Returns null if the pair has no merge.
  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const {
    const Entry& entry = entries_[place_of(key_of(left, right))];
    return entry.key == kNone ? nullptr : &entry.merge;
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t key = kNone;
    Merge merge;
  };

  static std::uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    std::size_t place = hash & (entries_.size() - 1);
    while (entries_[place].key != key && entries_[place].key != kNone) place = (place + 1) & (entries_.size() - 1);
    return place;
  }

  std::vector<Entry> entries_;
};

struct BpeParts {
  TextMap<TokenId> vocabulary;  ///< ids are not negative
  std::vector<std::pair<std::string, std::string>> merges;
  bool byte_level = false;         ///< tokens have one letter per byte (byte_alphabet.h)
  bool byte_fallback = false;      ///< unknown characters become <0xNN> tokens if all bytes have one
  bool fuse_unknown = false;       ///< adjacent unknown characters become one token
  bool whole_words_first = false;  ///< a word that is a token is not split
  std::optional<TokenId> unknown;  ///< if absent, unknown characters are dropped
};

/// Repeatedly merges the adjacent pair of lowest rank, the leftmost of equals.
class BpeModel final : public WordModel {
 public:
  /// Throws ConfigError if a merge has a token outside the vocabulary.
  BpeModel(const BpeParts& parts, const std::string& source);

  [[nodiscard]] std::string name() const override;
  void encode(std::string_view word, TokenIds& ids, WordCache& cache) const override;
  [[nodiscard]] bool splits_at(std::string_view word, std::size_t place) const override;

 private:
  void take_symbols(std::string_view part, TokenIds& symbols) const;
  void merge_symbols(TokenIds& symbols) const;
  void merge_long(TokenIds& symbols) const;
  void encode_part(std::string_view part, TokenIds& ids, WordCache& cache) const;
  [[nodiscard]] bool never_joins(char32_t left, char32_t right) const;
  void note_what_joins(const BpeParts& parts);

  bool byte_level_;
  bool byte_fallback_;
  bool fuse_unknown_;
  bool whole_words_first_;
  std::optional<TokenId> unknown_;
  MergeTable merges_;
  TextMap<TokenId> words_;                   // if whole_words_first_
  std::array<TokenId, 256> bytes_;           // [byte]; negative: no token
  bool unknown_apart_ = false;               // unknown characters always become byte tokens, without merges
  std::vector<TokenId> characters_;          // [code point]; negative: no token
  std::unordered_set<std::uint64_t> joins_;  // pairs of characters
  // joins_ of ASCII and the blank sign, by quick_place()
  std::vector<bool> ascii_joins_;
};

}  // namespace chimera
