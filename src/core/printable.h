#pragma once
// Texts for messages: foreign bytes made printable, and sizes in bytes.

#include <cstddef>
#include <string>
#include <string_view>

namespace chimera {

/// Returns the first `most` bytes of a text; other bytes than printable ASCII become \xNN.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = 40);
/// Limit of printable() for the message of a parser, which may quote the text.
inline constexpr std::size_t kParserMessage = 300;

/// Example: `1.5 GiB`; up to four digits.
[[nodiscard]] std::string bytes_text(double bytes);

}  // namespace chimera
