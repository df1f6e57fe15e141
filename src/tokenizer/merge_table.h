#pragma once
// The merges of a BPE model: which two neighbouring tokens become one, and which pair goes first.

#include <cstdint>
#include <vector>

#include "tokenizer/tokenizer.h"

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

}  // namespace chimera
