#pragma once
// Refuses input of the user with one line. It is apart from error.h because it needs the headers of fmt.

#include <fmt/format.h>

#include "core/error.h"

namespace chimera {

/// Throws ConfigError with the formatted message.
template <class... Values>
[[noreturn]] void reject(fmt::format_string<Values...> message, Values&&... values) {
  throw ConfigError(fmt::vformat(message, fmt::make_format_args(values...)));
}

}  // namespace chimera
