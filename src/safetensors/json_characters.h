#pragma once
// A range of a file as characters for nlohmann's parser (core/character_iterator.h), a block of it in memory at a
// time.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "safetensors/tensor_table.h"

namespace chimera {

/// `length` bytes from `offset` on. The parser keeps the text of one value at a time, so a text without a character
/// that ends a value is refused once it is longer than kLongestHeaderText; and so is a NUL, which the parser takes for
/// the end.
class JsonBytes {
 public:
  JsonBytes(std::string path, const ReadBytes& read, std::uint64_t offset, std::uint64_t length)
      : path_(std::move(path)), read_(read), offset_(offset), left_(length) {}

  [[nodiscard]] bool at_end() { return next_ == filled_ && !fill(); }
  [[nodiscard]] char peek() {
    if (at_end()) return 0;
    const char c = static_cast<char>(block_[next_]);
    if (c == 0) throw ConfigError(fmt::format("{}: has a NUL character where JSON is expected", path_));
    return c;
  }
  void advance() {
    note(peek());
    ++next_;
  }

 private:
  bool fill() {
    if (left_ == 0) return false;
    filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(block_.size(), left_));
    next_ = 0;
    read_(offset_, std::span(block_).first(filled_));
    offset_ += filled_;
    left_ -= filled_;
    return true;
  }
  void note(char c) {
    if (in_text_ ? c == '"' && !escaped_ : std::string_view(",:{}[] \n\r\t\"").find(c) != std::string_view::npos) {
      in_text_ = c == '"' && !in_text_;
      run_ = 0;
    }
    escaped_ = in_text_ && c == '\\' && !escaped_;
    if (++run_ > kLongestHeaderText) {
      throw ConfigError(
          fmt::format("{}: has a text of more than {} bytes where JSON is expected", path_, kLongestHeaderText));
    }
  }

  std::string path_;
  const ReadBytes& read_;
  std::uint64_t offset_;
  std::uint64_t left_;
  std::array<std::byte, 1 << 16> block_{};
  std::size_t next_ = 0;
  std::size_t filled_ = 0;
  std::size_t run_ = 0;  // characters of the value under way
  bool in_text_ = false;
  bool escaped_ = false;  // the character before was a backslash that counts
};

}  // namespace chimera
