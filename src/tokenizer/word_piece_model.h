#pragma once

// WordPiece, the model of BERT: a word becomes the longest token that begins it, then the longest token that continues
// it, until its end; a word that cannot be divided like this is unknown.

#include <string>
#include <string_view>

#include "tokenizer/word_cache.h"

namespace chimera {

struct WordPieceParts {
  TextMap<TokenId> vocabulary;
  TokenId unknown = 0;                ///< token of other words
  std::string continuing = "##";      ///< prefix of tokens inside a word
  std::size_t most_characters = 100;  ///< longer words are unknown
};

class WordPieceModel final : public WordModel {
 public:
  explicit WordPieceModel(WordPieceParts parts);

  [[nodiscard]] std::string name() const override { return "WordPiece"; }
  void encode(std::string_view word, TokenIds& ids, WordCache& cache) const override;
  [[nodiscard]] bool splits_at(std::string_view, std::size_t) const override { return false; }

 private:
  [[nodiscard]] TokenIds pieces_of(std::string_view word) const;

  WordPieceParts parts_;
  std::size_t longest_ = 0;  // bytes
};

}  // namespace chimera
