#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"

// All patterns are in one trie, byte by byte.

namespace chimera {
namespace {

bool is(char32_t c, CharacterClass character_class) { return (character_table()[c] & character_class) != 0; }

bool stands_alone(std::string_view text, std::size_t start, std::size_t end) {
  if (start > 0 && is(character_before(text, start), kWordCharacter)) return false;
  return end == text.size() || !is(next_character(text, end), kWordCharacter);
}

std::size_t before_white_space(std::string_view text, std::size_t end) {
  while (end > 0) {
    const char32_t c = character_before(text, end);
    if (!is(c, kSpace)) break;
    // The character does not tell how many bytes it has in the text, so it is encoded again.
    std::string bytes;
    append_utf8(bytes, c);
    end -= bytes.size();
  }
  return end;
}

std::size_t behind_white_space(std::string_view text, std::size_t start) {
  while (start < text.size()) {
    std::size_t next = start;
    if (!is(next_character(text, next), kSpace)) break;
    start = next;
  }
  return start;
}

}  // namespace

void TokenFinder::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  std::int32_t node = 0;
  for (const char byte : pattern) {
    auto& children = trie_[static_cast<std::size_t>(node)].children;
    const auto found =
        std::find_if(children.begin(), children.end(), [byte](const auto& c) { return c.first == byte; });
    if (found != children.end()) {
      node = found->second;
      continue;
    }
    const auto added = static_cast<std::int32_t>(trie_.size());
    children.emplace_back(byte, added);
    trie_.emplace_back();
    node = added;
  }
  Node& last = trie_[static_cast<std::size_t>(node)];
  // The pattern belongs to an earlier token.
  if (last.token >= 0) return;
  last.token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

/// Follows the trie as long as it can, and remembers the last token passed: the longest match wins.
std::int32_t TokenFinder::match(std::string_view text, std::size_t start, std::size_t& end) const {
  std::int32_t node = 0;
  std::int32_t longest = -1;
  for (std::size_t i = start;; ++i) {
    const Node& here = trie_[static_cast<std::size_t>(node)];
    if (here.token >= 0) {
      longest = here.token;
      end = i;
    }
    if (i == text.size()) return longest;
    const auto child =
        std::find_if(here.children.begin(), here.children.end(), [&](const auto& c) { return c.first == text[i]; });
    if (child == here.children.end()) return longest;
    node = child->second;
  }
}

void TokenFinder::split(std::string_view text, std::vector<TextPiece>& pieces) const {
  std::size_t taken = 0;  // text before it is in pieces
  std::size_t i = 0;
  while (!empty() && i < text.size()) {
    if (const auto& first = trie_.front().children; first.size() == 1) {  // a common case: all start with '<'
      i = text.find(first.front().first, i);
      if (i == text.npos) break;
    }
    std::size_t end = 0;
    const std::int32_t matched = match(text, i, end);
    if (matched < 0) {
      ++i;
      continue;
    }
    const std::size_t found = i;
    i = end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(matched)];
    // A refused match is skipped whole, as in tokenizers: the search goes on behind it.
    if (token.single_word && !stands_alone(text, found, end)) continue;
    // White space that the token before it includes (rstrip) stays there.
    const std::size_t start = token.lstrip ? std::max(before_white_space(text, found), taken) : found;
    if (token.rstrip) end = behind_white_space(text, end);
    if (taken < start) pieces.push_back({text.substr(taken, start - taken)});
    pieces.push_back({text.substr(start, end - start), token.id});
    taken = end;
  }
  if (taken < text.size()) pieces.push_back({text.substr(taken)});
}

}  // namespace chimera
