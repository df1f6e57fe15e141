#pragma once
// Encodings for pictures and HTML pages: numbers as typed arrays in base64 (for html.h), and escaped text.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// Returns JSON that the script of a page decodes to a typed array of JavaScript: {"type": "u8" | "u16" | "u32" |
/// "f32", "data": base64 of little-endian numbers}. Integers use the narrowest type that fits.
[[nodiscard]] nlohmann::ordered_json column(const std::vector<std::uint32_t>& values);
[[nodiscard]] nlohmann::ordered_json column(const std::vector<float>& values);

/// Encodes bytes by RFC 4648, with padding.
[[nodiscard]] std::string base64(std::string_view bytes);

/// Escapes text for an element or a quoted attribute of HTML or XML. Bytes that are not UTF-8, and characters that XML
/// 1.0 forbids, become U+FFFD.
[[nodiscard]] std::string escape_markup(std::string_view text);

}  // namespace chimera
