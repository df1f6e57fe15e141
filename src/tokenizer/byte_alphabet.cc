#include "tokenizer/byte_alphabet.h"

#include "tokenizer/unicode.h"

namespace chimera {

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  // 188 of 256 bytes are their own letters, which leaves 68.
  constexpr std::size_t kLetters = 0x100 + 68;  // the largest letter and 1
  static constexpr std::array<int, kLetters> kBytes = [] {
    std::array<int, kLetters> bytes{};
    bytes.fill(-1);
    for (std::size_t byte = 0; byte < 256; ++byte) bytes[kByteLetters[byte]] = static_cast<int>(byte);
    return bytes;
  }();
  std::string text;
  for (std::size_t i = 0; i < letters.size();) {
    const char32_t letter = next_character(letters, i);
    if (letter >= kLetters || kBytes[letter] < 0) return std::nullopt;
    text += static_cast<char>(kBytes[letter]);
  }
  return text;
}

}  // namespace chimera
