#pragma once

// Byte-level BPE (GPT-2, Llama 3) works on bytes, but its files store tokens as text. Each byte is therefore written as
// a character, here called its *letter*: the 188 printable bytes of Latin-1 as themselves, the others as U+0100 and
// above. A blank is U+0120.

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace chimera {

/// [byte]: its letter.
inline constexpr std::array<char32_t, 256> kByteLetters = [] {
  const auto is_itself = [](char32_t byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  };
  std::array<char32_t, 256> letters{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) letters[byte] = is_itself(byte) ? byte : next++;
  return letters;
}();

/// Returns the bytes that these letters, in UTF-8, stand for; nullopt if a character is not the letter of a byte.
[[nodiscard]] std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace chimera
