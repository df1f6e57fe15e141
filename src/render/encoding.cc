#include "render/encoding.h"

#include <algorithm>
#include <bit>

#include "core/json.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

// Pages read typed arrays, whose bytes have the order of the reader's machine; all browsers run on little-endian ones.
std::string little_endian(const std::vector<std::uint32_t>& values, int width) {
  std::string bytes;
  bytes.reserve(values.size() * static_cast<std::size_t>(width));
  for (const std::uint32_t value : values)
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

// The JSON library already replaces invalid bytes when it writes; a round trip saves a second decoder of UTF-8.
/// Replaces invalid bytes by U+FFFD.
std::string valid_utf8(std::string_view text) { return read_ordered_json(json_text(Json(text))).get<std::string>(); }

/// XML 1.0 forbids most control characters, U+FFFE and U+FFFF.
bool fits_xml(std::string_view text) {
  const char c = text.front();
  if (static_cast<unsigned char>(c) < 0x20) return c == '\t' || c == '\n' || c == '\r';
  return !text.starts_with("\xEF\xBF\xBE") && !text.starts_with("\xEF\xBF\xBF");
}

}  // namespace

Json column(const std::vector<std::uint32_t>& values) {
  const std::uint32_t most = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  const int width = most <= 0xFF ? 1 : most <= 0xFFFF ? 2 : 4;
  return {{"type", width == 1 ? "u8" : width == 2 ? "u16" : "u32"}, {"data", base64(little_endian(values, width))}};
}

Json column(const std::vector<float>& values) {
  // The bits of a float as an integer, so that one function writes the bytes of both.
  std::vector<std::uint32_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(),
                 [](float value) { return std::bit_cast<std::uint32_t>(value); });
  return {{"type", "f32"}, {"data", base64(little_endian(bits, 4))}};
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    // Three bytes make four digits of six bits. Of fewer bytes, the digits without any bits are `=`.
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string escape_markup(std::string_view text) {
  const std::string valid = valid_utf8(text);
  std::string result;
  // Bytes of longer characters are copied one by one. All that XML forbids among them begins with EF and has three
  // bytes.
  for (std::string_view rest = valid; !rest.empty(); rest.remove_prefix(1)) {
    const char c = rest.front();
    if (!fits_xml(rest)) {
      result += "\xEF\xBF\xBD";
      if (c == '\xEF') rest.remove_prefix(2);
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else if (c == '"') {
      result += "&quot;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace chimera
