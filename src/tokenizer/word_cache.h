#pragma once

// Encodes single words. TextMap is the type of vocabularies. WordModel is the interface of tokenizer models
// (bpe_model.h, word_piece_model.h). WordCache keeps the ids of words that were encoded before: most words of a text
// are repetitions, so most of them are found in the cache.

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// Hash of a TextMap, a map by text that can be searched by std::string_view without a copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

/// Ids of words, in limited memory. Short words are in a table, where they overwrite each other; long words are in a
/// map, which is cleared when it is full. Not thread-safe.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  /// Appends the ids of the word (not empty) to `ids`. Returns false if it is not in the cache.
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

  /// Stores the ids of a word. Ignores words of more than kLongest bytes.
  void insert(std::string_view word, std::span<const TokenId> ids) {
    if (word.size() <= kShort && ids.size() <= kFewIds) {
      const Key key = key_of(word);
      Slot& slot = slots_[slot_of(key, word.size())];
      slot = {key, {}, static_cast<std::uint16_t>(ids.size()), static_cast<std::uint16_t>(word.size())};
      std::copy(ids.begin(), ids.end(), slot.ids);
    } else if (word.size() <= kLongest) {
      if (long_.size() >= kMaxLong) long_.clear();
      long_.emplace(word, TokenIds(ids.begin(), ids.end()));
    }
  }

 private:
  static constexpr int kSlotBits = 16;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;
  static constexpr std::size_t kShort = 16;  // bytes
  static constexpr std::size_t kFewIds = 3;
  static constexpr std::size_t kLongest = 256;    // bytes
  static constexpr std::size_t kMaxLong = 32768;  // words in the map

  /// First and last bytes of a short word. With its length, they are the whole word.
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

/// A model of a tokenizer, such as BPE: it divides words into tokens. Immutable, so that threads can share it.
class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the ids of the word's tokens to `ids`. The word must not be empty. `cache` may hold words of this model
  /// only.
  virtual void encode(std::string_view word, TokenIds& ids, WordCache& cache) const = 0;
  /// Returns true if no token of `word` can extend across `place` (the number of bytes before the place); false if this
  /// is not certain.
  [[nodiscard]] virtual bool splits_at(std::string_view word, std::size_t place) const = 0;
};

}  // namespace chimera
