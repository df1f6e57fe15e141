#include "tokenizer/word_piece_model.h"

#include <algorithm>
#include <utility>

namespace chimera {
namespace {

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

class WordPieceModel final : public WordModel {
 public:
  explicit WordPieceModel(WordPieceParts parts) : parts_(std::move(parts)) {
    for (const auto& [token, id] : parts_.vocabulary) longest_ = std::max(longest_, token.size());
  }

  void encode(std::string_view word, TokenIds& ids, WordCache& cache) const override {
    if (cache.append(word, ids)) return;
    const TokenIds pieces = pieces_of(word);
    cache.insert(word, pieces);
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  bool splits_at(std::string_view, std::size_t) const override { return false; }

 private:
  TokenIds pieces_of(std::string_view word) const {
    const auto characters = std::count_if(word.begin(), word.end(), starts_character);
    if (static_cast<std::size_t>(characters) > parts_.most_characters) return {parts_.unknown};
    TokenIds pieces;
    std::string piece;
    for (std::size_t start = 0; start < word.size();) {
      const std::string_view prefix = start == 0 ? std::string_view{} : parts_.continuing;
      // Greedy: the longest token first.
      // No token is longer than `longest_`, so longer pieces are not tried.
      std::size_t length = std::min(word.size() - start, longest_);
      bool found = false;
      for (; length > 0 && !found; --length) {
        const std::size_t end = start + length;
        // A piece ends between characters.
        if (end < word.size() && !starts_character(word[end])) continue;
        piece.assign(prefix).append(word.substr(start, length));
        const auto token = parts_.vocabulary.find(piece);
        if (token == parts_.vocabulary.end()) continue;
        pieces.push_back(token->second);
        found = true;
        start = end;
      }
      // One part that is no token makes the whole word unknown, also the parts before it.
      if (!found) return {parts_.unknown};
    }
    return pieces;
  }

  WordPieceParts parts_;
  std::size_t longest_ = 0;  // bytes
};

}  // namespace

std::unique_ptr<WordModel> make_word_piece_model(WordPieceParts parts) {
  return std::make_unique<WordPieceModel>(std::move(parts));
}

}  // namespace chimera
