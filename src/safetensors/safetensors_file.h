#pragma once

// Files of weights in the safetensors format (github.com/huggingface/safetensors, README, "Format"): 8 bytes of length,
// then one JSON object with the type, the shape and the position of each tensor in the rest of the file. Files may come
// from strangers. TensorTable therefore checks everything in the header that a reader relies on, and limits its length.
// SafetensorsFile reads a file. lay_out() plans a new file before it is written: with the positions of all tensors,
// several ranks can write their tensors at the same time.

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "core/invariant.h"
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

/// An open file. The constructor reads and checks only the header; read() reads elements. Any number of threads may
/// read.
class SafetensorsFile {
 public:
  /// Throws ConfigError if the file cannot be read or is invalid.
  explicit SafetensorsFile(std::string path)
      : file_(std::move(path)),
        tensors_(file_.path(), file_.bytes(),
                 [this](std::uint64_t offset, std::span<std::byte> into) { file_.read(offset, into); }) {}

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const TensorTable& tensors() const { return tensors_; }

  /// Fills `into` with the tensor's bytes from its byte `first` on; the tensor must have so many bytes, else this is an
  /// InternalError. Throws ConfigError if the file was truncated or cannot be read.
  void read(const TensorEntry& tensor, std::uint64_t first, std::span<std::byte> into) const {
    require_invariant(first <= tensor.bytes && into.size() <= tensor.bytes - first, "a read is longer than its tensor");
    file_.read(tensor.begin + first, into);
  }

 private:
  RegularFile file_;
  TensorTable tensors_;
};

/// Header and positions of tensors of a file to write.
struct SafetensorsLayout {
  std::string head;                  ///< first bytes of the file: header length and header
  std::vector<TensorEntry> tensors;  ///< with their positions
  std::uint64_t file_bytes = 0;
};

/// Returns a layout for tensors with the given names, types and shapes (TensorEntry::begin and bytes are ignored): in
/// the given order, without gaps, from a multiple of 8 bytes on. A tensor is aligned to the size of its elements if no
/// earlier tensor has narrower elements. Throws ConfigError if the header is longer than kMaxHeaderBytes,
/// the limit of readers.
[[nodiscard]] SafetensorsLayout lay_out(std::vector<TensorEntry> tensors,
                                        const std::map<std::string, std::string>& metadata = {});

/// Returns the size of a tensor in bytes. Its elements must make whole bytes.
[[nodiscard]] std::uint64_t bytes_of(ElementType type, const std::vector<std::int64_t>& shape);

}  // namespace chimera
