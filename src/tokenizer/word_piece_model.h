#pragma once

// WordPiece, the model of BERT: a word becomes the longest token that begins it, then the longest token that continues
// it, until its end; a word that cannot be divided like this is unknown.

#include <memory>
#include <string>

#include "tokenizer/word_cache.h"

namespace chimera {

struct WordPieceParts {
  TextMap<TokenId> vocabulary;
  TokenId unknown = 0;                ///< token of other words
  std::string continuing = "##";      ///< prefix of tokens inside a word
  std::size_t most_characters = 100;  ///< longer words are unknown
};

[[nodiscard]] std::unique_ptr<WordModel> make_word_piece_model(WordPieceParts parts);

}  // namespace chimera
