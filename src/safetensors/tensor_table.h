#pragma once

// Reads the header of a safetensors file (github.com/huggingface/safetensors, README, "Format"): 8 bytes of length,
// then one JSON object with the type, the shape and the position of each tensor in the rest of the file. Files may come
// from strangers. TensorTable therefore checks everything that a reader relies on, and limits the length of the
// header.

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "safetensors/element_type.h"
#include "safetensors/regular_file.h"

namespace chimera {

/// Returns a tensor's name for messages: in quotes, printable and at most 120 characters long.
[[nodiscard]] std::string shown_name(std::string_view name);

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

/// Names, types, shapes and positions of the tensors in a file. Immutable, so any number of threads may read it.
class TensorTable {
 public:
  /// Reads the header of a file of `file_bytes` bytes with `read`; `path` is for messages. Throws ConfigError unless
  /// the header is one JSON object in UTF-8 without duplicate names, of the length in the file's first 8 bytes, at most
  /// kMaxHeaderBytes. Each tensor needs a valid type, a shape, and as many bytes as these require. The tensors must
  /// fill the rest of the file without overlap or hole.
  TensorTable(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read);

  /// Returns all tensors, in ascending order of names.
  [[nodiscard]] const std::vector<TensorEntry>& all() const { return tensors_; }
  /// Returns the tensor with this name; nullopt if there is none.
  [[nodiscard]] std::optional<TensorEntry> find(std::string_view name) const;
  /// Returns the names, ascending.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Returns the field `__metadata__` of the header; empty if there is none.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace chimera
