#pragma once

// JSON of untrusted files: the header of a safetensors file (tensor_table.h) and the index of several (weight_files.h).
// Both may be tens of megabytes long, so nlohmann's event parser reads them from the file in blocks, and only names and
// positions stay in memory.

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "safetensors/regular_file.h"

namespace chimera {

/// Longest name or other text: the parser keeps one in memory.
inline constexpr std::size_t kLongestHeaderText = std::size_t{1} << 20;

/// JSON text in a range of a file, read in blocks. nlohmann's parser keeps a value in memory and takes NUL for the end.
/// peek() and advance() therefore throw ConfigError for NUL and for values longer than kLongestHeaderText.
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
  std::size_t run_ = 0;  // of the current value
  bool in_text_ = false;
  bool escaped_ = false;  // the previous character was an escaping backslash
};

/// Makes a name printable.
[[nodiscard]] std::string shown_name(std::string_view name);
/// Returns the error without its quotation of the text.
[[nodiscard]] std::string json_fault(const nlohmann::detail::exception& error);

}  // namespace chimera
