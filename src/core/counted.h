#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace chimera {

/// Returns a number with its noun, which gets `s` (after `ch`: `es`) unless the number is 1: `1 replica`, `2 replicas`.
/// Not for nouns in -y, -s or -x.
[[nodiscard]] inline std::string counted(std::integral auto number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

}  // namespace chimera
