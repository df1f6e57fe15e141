#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"
#include "tokenizer/word_cache.h"

// What turns the words of a text into ids.

// WordPiece, BERT's model: the longest token first, from left to right.

namespace chimera {

/// A vocabulary of words and parts of words. Does not change.
class WordModel {
 public:
  virtual ~WordModel() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Appends the ids of a word, which is not empty. The cache is the caller's, always the same one for this model.
  virtual void encode(std::string_view word, TokenIds& ids, WordCache& cache) const = 0;
  /// Whether a word that ends before a blank may be encoded apart from what follows: what stands on the two sides of
  /// `place` in `word` is never one token.
  [[nodiscard]] virtual bool splits_at(std::string_view word, std::size_t place) const = 0;
};

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
