#pragma once
// UTF-8 and the properties of characters, as the Python package tokenizers has them: its versions of Unicode differ
// from each other, and from those of every library.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// What a character is; a character may be several.
enum CharacterClass : std::uint16_t {
  kLetter = 1 << 0,         ///< \p{L}
  kNumber = 1 << 1,         ///< \p{N}
  kSpace = 1 << 2,          ///< \s
  kWordCharacter = 1 << 3,  ///< no single word stands beside it
  kBertDrops = 1 << 4,      ///< BERT's clean-up leaves it out
  kBertBlank = 1 << 5,      ///< BERT's clean-up makes it a blank
  kChinese = 1 << 6,        ///< BERT puts blanks around it
  kAccent = 1 << 7,         ///< left out with the accents
  kPunctuation = 1 << 8,    ///< a word of its own for BERT
};

/// The classes of every code point below 0x110000.
class CharacterTable {
 public:
  CharacterTable();
  [[nodiscard]] std::uint16_t operator[](char32_t c) const { return classes_[c]; }

 private:
  std::vector<std::uint16_t> classes_;
};

/// One for the whole process, made when it is first asked for.
[[nodiscard]] const CharacterTable& character_table();

/// The character at `position` < text.size(), which then stands behind it. A byte that begins no valid character is
/// U+FFFD, alone.
[[nodiscard]] char32_t next_character(std::string_view text, std::size_t& position);
/// The character that ends before `position` > 0.
[[nodiscard]] char32_t character_before(std::string_view text, std::size_t position);
void append_utf8(std::string& text, char32_t c);

/// Where the first byte stands that is part of no valid character; nothing in valid UTF-8.
[[nodiscard]] std::optional<std::size_t> find_invalid_utf8(std::string_view text);
/// The text with U+FFFD for each longest start of a character that breaks off, and for each byte that starts none, as
/// Unicode recommends (and Rust and Python do).
[[nodiscard]] std::string with_replacements(std::string_view text);

/// True where no byte is above 0x7F.
[[nodiscard]] bool is_ascii(std::string_view text);

/// Appends the lower case of one character.
void append_lower(std::string& text, char32_t c);

/// Unicode's normal forms, of characters that Unicode 9 has; later ones stay as they are, and what stands on their two
/// sides is normalised apart. `text` is valid UTF-8.
[[nodiscard]] std::string composed(std::string_view text);    // NFC
[[nodiscard]] std::string decomposed(std::string_view text);  // NFD

}  // namespace chimera
