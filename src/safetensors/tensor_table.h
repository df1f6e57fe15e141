#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "safetensors/element_type.h"

// Many short texts without an allocation for each.

// Which tensors a file has, and where: what the header of a safetensors file says, believed only once all of it holds.
// Source: github.com/huggingface/safetensors, README, "Format".

namespace chimera {

/// Keeps texts for as long as it lives; they stay where they are, also when it is moved.
class TextPool {
 public:
  [[nodiscard]] std::string_view keep(std::string_view text) {
    if (free_ < text.size()) {
      free_ = std::max(kBlock, text.size());
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(free_));
      next_ = blocks_.back().get();
    }
    char* const begin = next_;
    next_ = std::copy(text.begin(), text.end(), begin);
    free_ -= text.size();
    return {begin, text.size()};
  }

 private:
  static constexpr std::size_t kBlock = 1 << 16;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  std::size_t free_ = 0;
};

/// One tensor of a file: row-major, little endian.
struct TensorEntry {
  std::string name;
  ElementType type = ElementType::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< its first byte, counted from the file's
  std::uint64_t bytes = 0;
};

/// Fills `into` with the bytes of a file from `offset` on; throws where it has fewer.
using ReadBytes = std::function<void(std::uint64_t offset, std::span<std::byte> into)>;

/// No header is longer.
inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
/// No name, and nothing else in a header, is longer than this text: the parser keeps one at a time.
inline constexpr std::size_t kLongestHeaderText = std::size_t{1} << 20;
inline constexpr std::size_t kMostDimensions = 64;
/// Texts that a header may have beside its tensors.
inline constexpr std::size_t kMostMetadata = 10'000;

/// The tensors of a file by name. It takes less memory than the header that it comes from, whatever that says.
class TensorTable {
 public:
  /// Reads the header of a file of `file_bytes` bytes and looks at nothing else. `path` is what messages call the file.
  /// Throws ConfigError unless it is one JSON object in UTF-8, of the length that the file's first 8 bytes say, at most
  /// kMostHeaderBytes, without a doubled name; each tensor has a type of the format, a shape, and as many bytes as
  /// these make; and the tensors, without overlap or hole, fill the rest of the file.
  TensorTable(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read);

  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  /// The tensor at place `i` in ascending order of names.
  [[nodiscard]] TensorEntry operator[](std::size_t i) const;
  [[nodiscard]] std::optional<TensorEntry> find(std::string_view name) const;
  /// The names, ascending.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  friend class HeaderReader;
  struct Row {
    std::string_view name;
    const char* shape = nullptr;  // as text, such as `2,3`
    std::uint16_t shape_length = 0;
    ElementType type = ElementType::F32;
    std::uint64_t begin = 0;  // from the end of the header on
    std::uint64_t end = 0;
  };
  void require_cover(const std::string& path, std::uint64_t data_bytes);
  void require_distinct(const std::string& path);

  TextPool texts_;
  std::deque<Row> rows_;  // not a vector, which needs twice its size to grow
  std::map<std::string, std::string> metadata_;
  std::uint64_t data_begin_ = 0;
};

}  // namespace chimera
