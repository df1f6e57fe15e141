#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/word_piece_model.h"

// The merges of a BPE model: which two neighbouring tokens become one, and which pair goes first.

// Byte-pair encoding. Source: Sennrich, Haddow and Birch, ACL 2016; the order of merges is that of the Python package
// tokenizers.

namespace chimera {

/// What a pair becomes.
struct Merge {
  std::uint32_t rank = 0;  ///< lower goes first
  TokenId id = 0;
};

/// A hash table of pairs; open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges) {
    std::size_t size = 16;
    while (size < 2 * merges) size *= 2;
    entries_.resize(size);
  }

  /// A second merge of a pair replaces the first.
  void insert(TokenId left, TokenId right, Merge merge) {
    Entry& entry = entries_[place_of(key_of(left, right))];
    entry = {key_of(left, right), merge};
  }

  /// Nothing: the pair stays two.
  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const {
    const Entry& entry = entries_[place_of(key_of(left, right))];
    return entry.key == kNone ? nullptr : &entry.merge;
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // ids are not negative
  struct Entry {
    std::uint64_t key = kNone;
    Merge merge;
  };

  static std::uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  /// Where the key stands, or would.
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    std::size_t place = hash & (entries_.size() - 1);
    while (entries_[place].key != key && entries_[place].key != kNone) place = (place + 1) & (entries_.size() - 1);
    return place;
  }

  std::vector<Entry> entries_;
};

/// What a BPE model is made of.
struct BpeParts {
  TextMap<TokenId> vocabulary;  ///< as the file writes tokens; ids are not negative
  std::vector<std::pair<std::string, std::string>> merges;
  bool byte_level = false;  ///< tokens are written with a letter for each byte (byte_alphabet.h), else as they are
  bool byte_fallback =
      false;  ///< a character that is no token becomes <0xNN> of its bytes, where all of these are tokens
  bool fuse_unknown = false;       ///< neighbouring unknown characters are one unknown token
  bool whole_words_first = false;  ///< a word that is a token needs no merges
  std::optional<TokenId> unknown;  ///< what other characters become; none: they vanish
};

/// Merges the pair of lowest rank, of equals the leftmost, until none is left.
class BpeModel final : public WordModel {
 public:
  /// Throws ConfigError where a merge is not of three tokens of the vocabulary; `source` names the file.
  BpeModel(const BpeParts& parts, const std::string& source);

  [[nodiscard]] std::string name() const override;
  void encode(std::string_view word, TokenIds& ids, WordCache& cache) const override;
  [[nodiscard]] bool splits_at(std::string_view word, std::size_t place) const override;

 private:
  /// The symbols that a part of a word consists of before any merge.
  void take_symbols(std::string_view part, TokenIds& symbols) const;
  void merge_symbols(TokenIds& symbols) const;
  void merge_long(TokenIds& symbols) const;
  void encode_part(std::string_view part, TokenIds& ids, WordCache& cache) const;
  /// Whether no merge ever joins two neighbouring characters, nor an unknown token stands for both.
  [[nodiscard]] bool never_joins(char32_t left, char32_t right) const;
  void note_what_joins(const BpeParts& parts);

  bool byte_level_;
  bool byte_fallback_;
  bool fuse_unknown_;
  bool whole_words_first_;
  std::optional<TokenId> unknown_;
  MergeTable merges_;
  TextMap<TokenId> words_;           // of whole_words_first_, by the text that they stand for
  std::array<TokenId, 256> bytes_;   // the token of a byte (by its letter, or <0xNN>); negative: none
  bool unknown_apart_ = false;       // whether unknown characters always become bytes, and those are never merged
  std::vector<TokenId> characters_;  // by code point, as far as tokens of one character go; negative: none
  std::unordered_set<std::uint64_t> joins_;  // pairs of characters that a merge may join
  std::vector<bool> ascii_joins_;            // of those below 128, and of the blank's sign, by quick_place()
};

}  // namespace chimera
