#pragma once
// Byte-level BPE stores tokens as text although they are bytes: each byte has a letter. 188 printable bytes of Latin-1
// are themselves, the others are U+0100 and more. A blank is U+0120.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chimera {

[[nodiscard]] const std::array<char32_t, 256>& byte_letters();
[[nodiscard]] std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace chimera
