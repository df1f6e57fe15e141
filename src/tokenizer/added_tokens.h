#pragma once

// Added tokens are found in a text before it is divided into words: special tokens such as <|endoftext|>, and tokens
// that a user added to a vocabulary. The tokenizer (pipeline_tokenizer.h) has two TokenFinders: one for the original
// text, and one for the normalized text.

#include <utility>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// An element of `added_tokens` in a tokenizer.json, with the field names of the file.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< whether it matches only if no word character is next to it
  bool lstrip = false;       ///< whether a match includes white space before it
  bool rstrip = false;       ///< whether a match includes white space after it
  bool normalized = true;    ///< whether it is found in the normalized text; otherwise in the original text
  bool special = false;      ///< whether decode() leaves it out
};

/// A part of a text: an added token, or the text between two of them.
struct TextPiece {
  std::string_view text;
  TokenId token = -1;  ///< id of the added token; negative: not an added token
};

/// Finds the longest added token at each position of a text.
class TokenFinder {
 public:
  TokenFinder() { trie_.emplace_back(); }

  /// Adds a token that is found where `pattern` (its content, or its normalized content) is in the text. Ignores an
  /// empty or repeated pattern.
  void add(const AddedToken& token, std::string_view pattern);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// Appends the pieces of the text to `pieces`, in order.
  void split(std::string_view text, std::vector<TextPiece>& pieces) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::int32_t>> children;
    std::int32_t token = -1;  // into tokens_; negative: no token
  };

  /// Returns the index of the longest token at `start`; negative if there is no match.
  [[nodiscard]] std::int32_t match(std::string_view text, std::size_t start, std::size_t& end) const;

  std::vector<Node> trie_;  // the first is the root
  std::vector<AddedToken> tokens_;
};

}  // namespace chimera
