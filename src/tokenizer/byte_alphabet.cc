#include "tokenizer/byte_alphabet.h"

#include "tokenizer/unicode.h"

namespace chimera {
namespace {

constexpr char32_t kFirstLetter = 0x100;
constexpr std::size_t kLetters = kFirstLetter + 68;

constexpr bool is_itself(char32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

std::array<char32_t, 256> make_letters() {
  std::array<char32_t, 256> letters{};
  char32_t next = kFirstLetter;
  for (char32_t byte = 0; byte < 256; ++byte) letters[byte] = is_itself(byte) ? byte : next++;
  return letters;
}

/// [letter]: its byte, or -1
std::array<int, kLetters> make_bytes() {
  std::array<int, kLetters> bytes{};
  bytes.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) bytes[byte_letters()[byte]] = static_cast<int>(byte);
  return bytes;
}

}  // namespace

const std::array<char32_t, 256>& byte_letters() {
  static const auto letters = make_letters();
  return letters;
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  static const auto bytes = make_bytes();
  std::string text;
  for (std::size_t i = 0; i < letters.size();) {
    const char32_t letter = next_character(letters, i);
    if (letter >= kLetters || bytes[letter] < 0) return std::nullopt;
    text += static_cast<char>(bytes[letter]);
  }
  return text;
}

}  // namespace chimera
