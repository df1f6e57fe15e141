#pragma once
// Properties of the terminal that shows the output. Commands with colors or a live view, such as `top`, use them.

#include <cstddef>
#include <string>
#include <string_view>

namespace chimera {

/// Returns whether the descriptor is a terminal that understands escape sequences: TERM is set, and not to `dumb`.
[[nodiscard]] bool supports_escapes(int descriptor);

/// Returns the width of the terminal, or 0 if the descriptor is not a terminal or its width is unknown.
[[nodiscard]] std::size_t terminal_columns(int descriptor);

/// Returns the text with each line cut to `columns` characters of UTF-8; 0: no limit. Counts the characters of escape
/// sequences too.
[[nodiscard]] std::string clip_lines(std::string_view text, std::size_t columns);

}  // namespace chimera
