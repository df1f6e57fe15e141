#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_set>

#include "core/printable.h"
#include "core/reject.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

// encode_part() has three steps: take_symbols() makes the first symbols, one for each byte or character;
// merge_symbols() joins pairs until no merge is left; the cache keeps the result. Everything is looked up by number:
// symbols are ids of tokens, so a merge is found by a pair of ids. Vocabularies without a pre-tokenizer (SentencePiece)
// see a whole text as one word; encode() then cuts it between characters that no merge joins, so that the parts are
// short and many are in the cache.

namespace chimera {
namespace {

constexpr TokenId kNoToken = -1;
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
constexpr std::size_t kShortWord = 48;  // symbols; more use a heap
// Vocabularies of SentencePiece write it for a blank, so it is as frequent as a letter.
constexpr char32_t kBlankSign = 0x2581;
constexpr std::size_t kQuick = 129;  // ASCII and the blank sign

/// Returns the place of a frequent character in `ascii_joins_`, or kQuick for other characters.
std::size_t quick_place(char32_t c) { return c < 128 ? c : c == kBlankSign ? 128 : kQuick; }

std::uint64_t pair_key(char32_t left, char32_t right) { return static_cast<std::uint64_t>(left) << 32 | right; }

char32_t first_character(std::string_view text) {
  std::size_t i = 0;
  return next_character(text, i);
}

TokenId id_or_none(const TextMap<TokenId>& vocabulary, const std::string& token) {
  const auto found = vocabulary.find(token);
  return found == vocabulary.end() ? kNoToken : found->second;
}

TokenId require_token(const TextMap<TokenId>& vocabulary, const std::string& token, std::size_t merge,
                      const std::string& source) {
  const TokenId id = id_or_none(vocabulary, token);
  if (id != kNoToken) return id;
  reject("{}: merge {}: '{}' is not in the vocabulary; give vocabulary and merges of the same tokenizer", source,
         merge + 1, printable(token));
}

struct Merge {
  std::uint32_t rank = 0;  ///< lower ranks are merged first
  TokenId id = 0;
};

/// Open-addressing hash table, at most half full.
class MergeTable {
 public:
  // A power of two, so that a mask replaces the division.
  explicit MergeTable(std::size_t merges) {
    std::size_t size = 16;
    while (size < 2 * merges) size *= 2;
    entries_.resize(size);
  }

  void insert(TokenId left, TokenId right, Merge merge) {
    Entry& entry = entries_[place_of(key_of(left, right))];
    // A pair that the file has twice keeps its later rank.
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
    // The product mixes low bits into the high ones, and the shift brings them back down. The loop ends because half of
    // the table is empty.
    std::uint64_t hash = key * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    std::size_t place = hash & (entries_.size() - 1);
    while (entries_[place].key != key && entries_[place].key != kNone) place = (place + 1) & (entries_.size() - 1);
    return place;
  }

  std::vector<Entry> entries_;
};

class BpeModel final : public WordModel {
 public:
  BpeModel(const BpeParts& parts, const std::string& source) : rules_(parts), merges_(parts.merges.size()) {
    for (std::size_t i = 0; i < parts.merges.size(); ++i) {
      const auto& [left, right] = parts.merges[i];
      const TokenId left_id = require_token(parts.vocabulary, left, i, source);
      const TokenId right_id = require_token(parts.vocabulary, right, i, source);
      // A merge does not say what it makes: it is the token with the joined text.
      const TokenId merged_id = require_token(parts.vocabulary, left + right, i, source);
      merges_.insert(left_id, right_id, {static_cast<std::uint32_t>(i), merged_id});
    }
    for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
      std::string token;
      if (rules_.byte_level)
        append_utf8(token, kByteLetters[byte]);
      else
        token = fmt::format("<0x{:02X}>", byte);
      bytes_[byte] = id_or_none(parts.vocabulary, token);
    }
    for (const auto& [token, id] : parts.vocabulary) {
      if (rules_.whole_words_first) {
        if (const auto text = rules_.byte_level ? bytes_of_letters(token) : token) words_.emplace(*text, id);
      }
      if (rules_.byte_level || token.empty()) continue;
      std::size_t end = 0;
      const char32_t c = next_character(token, end);
      // Only tokens of one character can be first symbols.
      if (end != token.size()) continue;
      if (characters_.size() <= c) characters_.resize(c + 1, kNoToken);
      characters_[c] = id;
    }
    // With bytes as symbols there is always a pre-tokenizer, and a whole word that is a token must stay in one part.
    if (!rules_.byte_level && !rules_.whole_words_first) note_what_joins(parts);
  }

  void encode(std::string_view word, TokenIds& ids, WordCache& cache) const override {
    if (rules_.byte_level || rules_.whole_words_first) return encode_part(word, ids, cache);
    // A text without a pre-tokenizer is one word. Encode parts that never join separately, for the cache.
    std::size_t start = 0;
    std::size_t i = 0;
    char32_t before = next_character(word, i);
    while (i < word.size()) {
      const std::size_t place = i;
      const char32_t behind = next_character(word, i);
      if (never_joins(before, behind)) {
        encode_part(word.substr(start, place - start), ids, cache);
        start = place;
      }
      before = behind;
    }
    encode_part(word.substr(start), ids, cache);
  }

  bool splits_at(std::string_view word, std::size_t place) const override {
    // PipelineTokenizer::cuts_at() asks for a blank, or its sign, and the character before it.
    if (rules_.byte_level || rules_.whole_words_first || place == 0 || place >= word.size()) return false;
    return never_joins(character_before(word, place), first_character(word.substr(place)));
  }

 private:
  /// Notes the pairs of characters at which some merge joins two tokens. Between any other two characters no token
  /// extends, so a long text without words can be cut there and its parts cached.
  void note_what_joins(const BpeParts& parts) {
    const auto is_byte = [this](const TextMap<TokenId>& vocabulary, const std::string& token) {
      return std::find(bytes_.begin(), bytes_.end(), vocabulary.find(token)->second) != bytes_.end();
    };
    // Bytes of unknown characters stay apart if no merge begins or ends with a byte token.
    unknown_apart_ = rules_.byte_fallback && std::find(bytes_.begin(), bytes_.end(), kNoToken) == bytes_.end();
    for (const auto& [left, right] : parts.merges)
      if (is_byte(parts.vocabulary, left) || is_byte(parts.vocabulary, right)) unknown_apart_ = false;
    ascii_joins_.resize(kQuick * kQuick);
    for (const auto& [left, right] : parts.merges) {
      if (left.empty() || right.empty()) continue;
      const char32_t before = character_before(left, left.size());
      const char32_t behind = first_character(right);
      joins_.insert(pair_key(before, behind));
      if (quick_place(before) < kQuick && quick_place(behind) < kQuick)
        ascii_joins_[quick_place(before) * kQuick + quick_place(behind)] = true;
    }
  }

  bool never_joins(char32_t left, char32_t right) const {
    const auto is_known = [this](char32_t c) { return c < characters_.size() && characters_[c] != kNoToken; };
    // Unknown characters may be fused, reordered, or merged as bytes.
    if (!is_known(left) || !is_known(right)) return unknown_apart_;
    // A bit answers for nearly all pairs of English text; the set is for the others.
    const std::size_t before = quick_place(left);
    const std::size_t behind = quick_place(right);
    if (before < kQuick && behind < kQuick) return !ascii_joins_[before * kQuick + behind];
    return !joins_.contains(pair_key(left, right));
  }

  void encode_part(std::string_view part, TokenIds& ids, WordCache& cache) const {
    if (cache.append(part, ids)) return;
    if (rules_.whole_words_first) {
      if (const auto whole = words_.find(part); whole != words_.end()) {
        ids.push_back(whole->second);
        return cache.insert(part, {&whole->second, 1});
      }
    }
    TokenIds symbols;
    symbols.reserve(part.size());
    take_symbols(part, symbols);
    merge_symbols(symbols);
    cache.insert(part, symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  void take_symbols(std::string_view part, TokenIds& symbols) const {
    // tokenizers puts an unknown token only before the next known one, or fuses it with the next unknown.
    bool unknown_waits = false;
    const auto put_waiting = [&] {
      if (unknown_waits) symbols.push_back(*rules_.unknown);
      unknown_waits = false;
    };
    for (std::size_t i = 0; i < part.size();) {
      const std::size_t start = i;
      TokenId id = kNoToken;
      if (rules_.byte_level) {
        id = bytes_[static_cast<unsigned char>(part[i++])];
      } else {
        const char32_t c = next_character(part, i);
        if (c < characters_.size()) id = characters_[c];
      }
      if (id != kNoToken) {
        put_waiting();
        symbols.push_back(id);
        continue;
      }
      const std::string_view character = part.substr(start, i - start);
      const auto has_token = [this](char byte) { return bytes_[static_cast<unsigned char>(byte)] != kNoToken; };
      if (rules_.byte_fallback && std::all_of(character.begin(), character.end(), has_token)) {
        // A pending unknown token follows, as in tokenizers.
        for (const char byte : character) symbols.push_back(bytes_[static_cast<unsigned char>(byte)]);
        continue;
      }
      if (!rules_.unknown) continue;
      if (!rules_.fuse_unknown) put_waiting();
      unknown_waits = true;
    }
    put_waiting();
  }

  /// Example: with the merges (l, o) and (lo, w), in this order, the symbols l o w become lo w and then low.
  void merge_symbols(TokenIds& symbols) const {
    if (symbols.size() < 2) return;
    if (symbols.size() > kShortWord) return merge_long(symbols);
    // Quadratic, but words are short: a scan of 48 ranks beats a heap.
    std::array<Merge, kShortWord> merges;  // [symbol]: merge with the next symbol
    const auto look = [&](std::size_t i) {
      const Merge* found = i + 1 < symbols.size() ? merges_.find(symbols[i], symbols[i + 1]) : nullptr;
      merges[i] = found == nullptr ? Merge{kNoRank, kNoToken} : *found;
    };
    for (std::size_t i = 0; i < symbols.size(); ++i) look(i);
    while (symbols.size() > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < symbols.size(); ++i)
        if (merges[i].rank < merges[best].rank) best = i;
      if (merges[best].rank == kNoRank) return;
      symbols[best] = merges[best].id;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      // The entry of the removed symbol goes, and those behind it move up. Then only the two pairs with the new symbol
      // are looked up again.
      std::copy(merges.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                merges.begin() + static_cast<std::ptrdiff_t>(symbols.size()) + 1,
                merges.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      look(best);
      if (best > 0) look(best - 1);
    }
  }

  void merge_long(TokenIds& symbols) const {
    // Symbols form a linked list; merging removes the right symbol. The queue holds pairs by rank, then from left to
    // right; pairs that a merge has changed are skipped.
    using Place = std::uint32_t;
    if (symbols.size() >= std::numeric_limits<Place>::max()) throw ConfigError("a word has more than 2^32 bytes");
    const auto count = static_cast<Place>(symbols.size());
    std::vector<Place> next(count);
    std::vector<Place> previous(count);
    for (Place i = 0; i < count; ++i) {
      next[i] = i + 1;
      // For the first symbol this wraps around to a place that find() refuses.
      previous[i] = i - 1;
    }
    const auto find = [&](Place i) -> const Merge* {
      if (i >= count || symbols[i] == kNoToken || next[i] >= count) return nullptr;
      return merges_.find(symbols[i], symbols[next[i]]);
    };
    using Waiting = std::pair<std::uint32_t, Place>;  // rank, left symbol
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> queue;
    const auto consider = [&](Place i) {
      if (const Merge* merge = find(i)) queue.emplace(merge->rank, i);
    };
    for (Place i = 0; i < count; ++i) consider(i);
    while (!queue.empty()) {
      const auto [rank, left] = queue.top();
      queue.pop();
      const Merge* merge = find(left);
      if (merge == nullptr || merge->rank != rank) continue;
      const Place right = next[left];
      symbols[left] = merge->id;
      symbols[right] = kNoToken;
      next[left] = next[right];
      if (next[right] < count) previous[next[right]] = left;
      consider(previous[left]);
      consider(left);
    }
    // Removed symbols are marked until here, so that places keep their meaning.
    std::erase(symbols, kNoToken);
  }

  BpeRules rules_;
  MergeTable merges_;
  TextMap<TokenId> words_;                   // if rules_.whole_words_first
  std::array<TokenId, 256> bytes_;           // [byte]; negative: no token
  bool unknown_apart_ = false;               // unknown characters always become byte tokens, without merges
  std::vector<TokenId> characters_;          // [code point]; negative: no token
  std::unordered_set<std::uint64_t> joins_;  // pairs of characters
  // joins_ of ASCII and the blank sign, by quick_place()
  std::vector<bool> ascii_joins_;
};

}  // namespace

std::unique_ptr<WordModel> make_bpe_model(const BpeParts& parts, const std::string& source) {
  return std::make_unique<BpeModel>(parts, source);
}

}  // namespace chimera
