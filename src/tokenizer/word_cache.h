#pragma once

// Encoding of one word: the interface of models (bpe_model.h, word_piece_model.h), and the cache of
// encoded words. Most words of a text are repetitions, so encoding is mostly a lookup here.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// Hash for lookups by std::string_view.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

/// Bounded cache: short words in slots that they may overwrite, long words in a map that is cleared when full.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  /// Returns false if the word (not empty) is not cached.
  bool append(std::string_view word, TokenIds& ids) const {
    if (word.size() <= kShort) {
      const Key key = key_of(word);
      const Slot& slot = slots_[slot_of(key, word.size())];
      if (slot.key == key && slot.length == word.size()) {
        ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
        return true;
      }
    }
    const auto found = long_.find(word);
    if (found == long_.end()) return false;
    ids.insert(ids.end(), found->second.begin(), found->second.end());
    return true;
  }

  void insert(std::string_view word, std::span<const TokenId> ids) {
    if (word.size() <= kShort && ids.size() <= kFewIds) {
      const Key key = key_of(word);
      Slot& slot = slots_[slot_of(key, word.size())];
      slot = {key, {}, static_cast<std::uint16_t>(ids.size()), static_cast<std::uint16_t>(word.size())};
      std::copy(ids.begin(), ids.end(), slot.ids);
    } else if (word.size() <= kLongest) {
      if (long_.size() >= kMostLong) long_.clear();
      long_.emplace(word, TokenIds(ids.begin(), ids.end()));
    }
  }

 private:
  static constexpr int kSlotBits = 16;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;
  static constexpr std::size_t kShort = 16;  // bytes
  static constexpr std::size_t kFewIds = 3;
  static constexpr std::size_t kLongest = 256;     // bytes
  static constexpr std::size_t kMostLong = 32768;  // words in the map

  struct Key {
    std::uint64_t head = 0;
    std::uint64_t tail = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Slot {
    Key key;
    TokenId ids[kFewIds] = {};
    std::uint16_t count = 0;
    std::uint16_t length = 0;  // 0: empty slot
  };

  template <class Number>
  static std::uint64_t load(const char* bytes) {
    Number number = 0;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }

  static Key key_of(std::string_view word) {
    const char* first = word.data();
    const char* end = first + word.size();
    if (word.size() >= 8) return {load<std::uint64_t>(first), load<std::uint64_t>(end - 8)};
    if (word.size() >= 4) return {load<std::uint32_t>(first), load<std::uint32_t>(end - 4)};
    if (word.size() >= 2) return {load<std::uint16_t>(first), load<std::uint16_t>(end - 2)};
    return {load<std::uint8_t>(first), 0};
  }

  static std::size_t slot_of(const Key& key, std::size_t length) {
    std::uint64_t hash = key.head * 0x9E3779B97F4A7C15U ^ (key.tail + length) * 0xC2B2AE3D27D4EB4FU;
    hash ^= hash >> 29;
    return (hash * 0x9E3779B97F4A7C15U) >> (64 - kSlotBits);
  }

  std::vector<Slot> slots_;
  TextMap<TokenIds> long_;
};

/// Maps words to ids. Immutable.
class WordModel {
 public:
  virtual ~WordModel() = default;
  /// `word` must not be empty; `cache` must be used for this model only.
  virtual void encode(std::string_view word, TokenIds& ids, WordCache& cache) const = 0;
  /// Returns whether certainly no token extends across `place` in `word`.
  [[nodiscard]] virtual bool splits_at(std::string_view word, std::size_t place) const = 0;
};

}  // namespace chimera
