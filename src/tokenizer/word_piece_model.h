#pragma once
// WordPiece, BERT's model: the longest token first, from left to right.

#include <string>

#include "tokenizer/word_model.h"

namespace chimera {

struct WordPieceParts {
  TextMap<TokenId> vocabulary;
  TokenId unknown = 0;                ///< of a word that is too long, or not made of tokens
  std::string continuing = "##";      ///< what tokens begin with that go on in a word
  std::size_t most_characters = 100;  ///< of a word
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
  std::size_t longest_ = 0;  // bytes of a token
};

}  // namespace chimera
