#pragma once
// The characters of a TextSource for nlohmann's parser (core/character_iterator.h).

#include <fmt/format.h>

#include <cstdint>

#include "core/error.h"
#include "schedule/text_source.h"

namespace chimera {

inline constexpr std::int64_t kLongestRun = 65536;  // characters without a value: the parser keeps a value's text

/// The characters of a text, or of its first line.
struct Cursor {
  TextSource& text;
  bool one_line = false;
  std::int64_t run = 0;  // characters since the last value

  [[nodiscard]] bool at_end() const {
    const int c = text.peek();
    return c == TextSource::kEnd || (one_line && c == '\n');
  }
  [[nodiscard]] char peek() const { return static_cast<char>(text.peek()); }
  void advance() {
    text.advance();
    if (++run > kLongestRun) {
      throw ConfigError(fmt::format("{}: JSON: more than {} characters without a value", text.name(), kLongestRun));
    }
  }
};

}  // namespace chimera
