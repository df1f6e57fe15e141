#pragma once
// The characters of a TextSource as nlohmann's parser wants them.

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

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
  void advance() {
    text.advance();
    if (++run > kLongestRun) {
      throw ConfigError(fmt::format("{}: JSON: more than {} characters without a value", text.name(), kLongestRun));
    }
  }
};

class CharacterIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CharacterIterator() = default;  // the end
  explicit CharacterIterator(Cursor& cursor) : cursor_(&cursor) {}
  char operator*() const { return static_cast<char>(cursor_->text.peek()); }
  CharacterIterator& operator++() {
    cursor_->advance();
    return *this;
  }
  CharacterIterator operator++(int) {
    const CharacterIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CharacterIterator& a, const CharacterIterator& b) { return a.ends() == b.ends(); }

 private:
  [[nodiscard]] bool ends() const { return cursor_ == nullptr || cursor_->at_end(); }
  Cursor* cursor_ = nullptr;
};

}  // namespace chimera
