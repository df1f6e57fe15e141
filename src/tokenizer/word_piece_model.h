#pragma once

// WordPiece, the WordModel (word_cache.h) of BERT's tokenizer. A word is divided into the longest token that begins it,
// then the longest token that continues it, and so on. A word that cannot be divided in this way becomes the token for
// unknown words.

#include <memory>

#include "tokenizer/word_cache.h"

namespace chimera {

/// A WordPiece model as its files describe it.
struct WordPieceParts {
  TextMap<TokenId> vocabulary;        ///< token -> id
  TokenId unknown = 0;                ///< id for unknown words
  std::string continuing = "##";      ///< prefix, in the vocabulary, of tokens that do not begin a word
  std::size_t most_characters = 100;  ///< longer words are unknown
};

[[nodiscard]] std::unique_ptr<WordModel> make_word_piece_model(WordPieceParts parts);

}  // namespace chimera
