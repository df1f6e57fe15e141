#pragma once
// Foreign text in messages of one line.

#include <cstddef>
#include <string>
#include <string_view>

namespace chimera {

/// A piece of a text as a message may quote it: its first `most` bytes, those that are no printable ASCII as \xNN.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = 40);
/// How much of a parser's own message, which may quote the text, is worth telling.
inline constexpr std::size_t kParserMessage = 300;

}  // namespace chimera
