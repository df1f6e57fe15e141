#pragma once
// Tokens that stand beside a model's vocabulary, and are found in a text before the model sees it.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// One added token, with the fields of tokenizer.json.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word character stands beside it
  bool lstrip = false;       ///< swallows the white space before it
  bool rstrip = false;       ///< swallows the white space behind it
  bool normalized = true;    ///< looked for in the normalised text
  bool special = false;      ///< left out when ids are decoded
};

/// A piece of a text: an added token, or what lies between two.
struct TextPiece {
  std::string_view text;
  TokenId token = -1;  ///< negative: none, but text
};

/// Finds some of the added tokens in a text, of those that begin at one place the longest.
class TokenFinder {
 public:
  TokenFinder() { trie_.emplace_back(); }

  /// `pattern` is what the token is in the text. Of two tokens with one pattern the first counts; an empty one is never
  /// found.
  void add(const AddedToken& token, std::string_view pattern);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// Appends the pieces of the text, in order, none of them empty but tokens.
  void split(std::string_view text, std::vector<TextPiece>& pieces) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::int32_t>> children;
    std::int32_t token = -1;  // of those that were added
  };

  /// The token that begins at `start`, and its end; negative for none.
  [[nodiscard]] std::int32_t match(std::string_view text, std::size_t start, std::size_t& end) const;

  std::vector<Node> trie_;
  std::array<std::int32_t, 256> roots_{};  // the child of the root for a byte, 0 for none
  std::vector<AddedToken> tokens_;
  std::string first_bytes_;  // of all patterns, each once
};

}  // namespace chimera
