#pragma once
// UTF-8 and properties of characters, for the parts of a tokenizer. Each property is of the same Unicode version as in
// the Python package tokenizers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// Properties of a character, as bits.
enum CharacterClass : std::uint16_t {
  kLetter = 1 << 0,         ///< \p{L}
  kNumber = 1 << 1,         ///< \p{N}
  kSpace = 1 << 2,          ///< \s
  kWordCharacter = 1 << 3,  ///< part of a word; AddedToken::single_word tokens do not match next to it
  kBertDrops = 1 << 4,      ///< removed by BERT's clean_text
  kBertBlank = 1 << 5,      ///< made a blank by BERT's clean_text
  kChinese = 1 << 6,        ///< surrounded by blanks by BERT
  kAccent = 1 << 7,         ///< removed by strip_accents
  kPunctuation = 1 << 8,    ///< a separate word for BERT
};

/// [code point]: its properties, a sum of CharacterClass bits.
using CharacterTable = std::vector<std::uint16_t>;

/// Returns the table of all code points. Its first call takes time to make it; thread-safe.
[[nodiscard]] const CharacterTable& character_table();

/// Returns the character at `position`, which is before the end of the text, and moves `position` behind it. An invalid
/// byte is returned as U+FFFD.
[[nodiscard]] char32_t next_character(std::string_view text, std::size_t& position);
/// Returns the character that ends at `position` > 0.
[[nodiscard]] char32_t character_before(std::string_view text, std::size_t position);
void append_utf8(std::string& text, char32_t c);

/// Returns the position of the first byte that is not valid UTF-8; nullopt if all are.
[[nodiscard]] std::optional<std::size_t> find_invalid_utf8(std::string_view text);
/// Replaces each maximal incomplete character, and each other invalid byte, by U+FFFD, as Unicode recommends.
[[nodiscard]] std::string with_replacements(std::string_view text);

/// Returns `text` with `to` instead of each `from` (not empty), from left to right.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

[[nodiscard]] bool is_ascii(std::string_view text);

/// Appends the character in lower case, which may be several characters.
void append_lower(std::string& text, char32_t c);

/// Return the text in a Unicode normal form. Only characters of Unicode 9 change; a later character is copied, and the
/// text before and after it is normalized separately. `text` must be valid UTF-8.
[[nodiscard]] std::string compose(std::string_view text);    // NFC
[[nodiscard]] std::string decompose(std::string_view text);  // NFD

}  // namespace chimera
