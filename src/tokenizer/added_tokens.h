#pragma once

// Tokens that are found in a text before it is cut into words, such as <|endoftext|>: special tokens, and tokens that a
// user added to a vocabulary. PipelineTokenizer looks for them twice: in the original and in the normalized text.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// Token outside the model's vocabulary, as in tokenizer.json.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< no match next to a word character
  bool lstrip = false;       ///< includes white space before it
  bool rstrip = false;       ///< includes white space after it
  bool normalized = true;    ///< matches the normalized text
  bool special = false;      ///< left out by decode()
};

struct TextPiece {
  std::string_view text;
  TokenId token = -1;  ///< negative: text
};

/// Finds the longest added token at each position of a text.
class TokenFinder {
 public:
  TokenFinder() { trie_.emplace_back(); }

  /// Ignores an empty or repeated pattern.
  void add(const AddedToken& token, std::string_view pattern);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  void split(std::string_view text, std::vector<TextPiece>& pieces) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::int32_t>> children;
    std::int32_t token = -1;  // into tokens_; negative: no token
  };

  /// Returns the index of the longest token at `start`; negative if there is no match.
  [[nodiscard]] std::int32_t match(std::string_view text, std::size_t start, std::size_t& end) const;

  std::vector<Node> trie_;
  std::array<std::int32_t, 256> roots_{};  // [byte]: child of the root, or 0
  std::vector<AddedToken> tokens_;
  std::string first_bytes_;  // distinct
};

}  // namespace chimera
