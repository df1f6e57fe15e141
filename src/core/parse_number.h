#pragma once
// Texts that are numbers.

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace chimera {

/// The number that the whole text is, without blanks or a plus; nothing where it is none, or none of that type.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace chimera
