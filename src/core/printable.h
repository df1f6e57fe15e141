#pragma once
// Text for error messages: printable() quotes text from files and users, and bytes_text() formats sizes.

#include <cstddef>
#include <string>
#include <string_view>

namespace chimera {

/// Returns the first `most` bytes of a text, with ` ...` if it is longer. Bytes other than printable ASCII become \xNN.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = 40);
/// Value of `most` for the error message of a JSON or TOML parser, which may quote parts of a user's file.
inline constexpr std::size_t kParserMessage = 300;

/// Returns a size with up to four digits and a binary unit, such as `1.5 GiB`.
[[nodiscard]] std::string bytes_text(double bytes);

}  // namespace chimera
