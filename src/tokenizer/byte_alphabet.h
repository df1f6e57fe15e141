#pragma once
// GPT-2's way to write any bytes as letters: a printable byte of Latin-1 is itself, the other 68 are, in their order,
// the characters from U+0100 on. A blank is U+0120.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chimera {

/// The letter of each byte.
[[nodiscard]] const std::array<char32_t, 256>& byte_letters();
/// Bytes as letters, in UTF-8.
[[nodiscard]] std::string letters_of_bytes(std::string_view bytes);
/// The bytes that letters stand for; nothing where one of them stands for none.
[[nodiscard]] std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace chimera
