#pragma once
// Encodings that pictures need: numbers for a page's scripts, and text for its markup.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// A typed array for a page: {"type": "u8" | "u16" | "u32" | "f32", "data": base64 of little-endian numbers}. Integers
/// take the narrowest type that holds them all.
[[nodiscard]] nlohmann::ordered_json column(const std::vector<std::uint32_t>& values);
[[nodiscard]] nlohmann::ordered_json column(const std::vector<float>& values);

/// RFC 4648, with padding.
[[nodiscard]] std::string base64(std::string_view bytes);

/// Text for the inside of an element or a quoted attribute of HTML or XML: its special characters as entities, and
/// what XML 1.0 has no place for (control characters, bytes outside UTF-8) as U+FFFD.
[[nodiscard]] std::string escaped_markup(std::string_view text);

}  // namespace chimera
