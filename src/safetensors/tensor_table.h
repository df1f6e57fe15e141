#pragma once

// Reads the header of a safetensors file (github.com/huggingface/safetensors, README, "Format"): 8 bytes of length,
// then one JSON object with the type, the shape and the position of each tensor in the rest of the file. Files may come
// from strangers. TensorTable therefore checks everything that a reader relies on, and limits the length of the
// header.

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "safetensors/element_type.h"
#include "safetensors/regular_file.h"

namespace chimera {

class JsonValue;

/// Returns a tensor's name for messages: in quotes, printable and at most 120 characters long.
[[nodiscard]] std::string shown_name(std::string_view name);

/// Storage for many short texts.
class TextPool {
 public:
  /// Copies the text into the pool. The result stays valid while the pool exists, even if the pool is moved.
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

/// A tensor of a file: row-major, little endian.
struct TensorEntry {
  std::string name;
  ElementType type = ElementType::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< byte position from the start of the file
  std::uint64_t bytes = 0;  ///< size of the elements
};

/// Limits of a header; a file that exceeds one of them is invalid.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxDimensions = 64;    ///< of a tensor
inline constexpr std::size_t kMaxMetadata = 10'000;  ///< fields of `__metadata__`

/// Names, types, shapes and positions of the tensors in a file. Takes less memory than the header. Immutable, so any
/// number of threads may read it.
class TensorTable {
 public:
  /// Reads the header of a file of `file_bytes` bytes with `read`; `path` is for messages. Throws ConfigError unless
  /// the header is one JSON object in UTF-8 without duplicate names, of the length in the file's first 8 bytes, at most
  /// kMaxHeaderBytes. Each tensor needs a valid type, a shape, and as many bytes as these require. The tensors must
  /// fill the rest of the file without overlap or hole.
  TensorTable(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read);

  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  /// Returns tensor `i` in ascending order of names.
  [[nodiscard]] TensorEntry operator[](std::size_t i) const;
  /// Returns the tensor with this name; nullopt if there is none.
  [[nodiscard]] std::optional<TensorEntry> find(std::string_view name) const;
  /// Returns the names, ascending.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Returns the field `__metadata__` of the header; empty if there is none.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Row {
    std::string_view name;
    const char* shape = nullptr;  // as text, such as `2,3`
    std::uint16_t shape_length = 0;
    ElementType type = ElementType::F32;
    std::uint64_t begin = 0;  // byte position from the end of the header
    std::uint64_t end = 0;
  };
  void add(const JsonValue& tensor, std::string_view name);
  void require_cover(const std::string& path, std::uint64_t data_bytes);

  TextPool texts_;
  std::deque<Row> rows_;  // a vector would need twice its size to grow
  std::map<std::string, std::string> metadata_;
  std::uint64_t data_begin_ = 0;
};

}  // namespace chimera
