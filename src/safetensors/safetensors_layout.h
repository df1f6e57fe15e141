#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "safetensors/regular_file.h"
#include "safetensors/tensor_table.h"

// Tensors in a file that every framework reads: safetensors. A u64 length, a JSON header, the raw elements.

// What a safetensors file will be before any of its elements is written: so that several may write it, each its part.

namespace chimera {

/// A file open for reading. What it says is checked before it is believed (TensorTable); elements are read where they
/// are asked for. Any number of threads may read.
class SafetensorsFile {
 public:
  /// Throws ConfigError where the file cannot be read or is no sound safetensors file.
  explicit SafetensorsFile(std::string path)
      : file_(std::move(path)),
        tensors_(file_.path(), file_.bytes(),
                 [this](std::uint64_t offset, std::span<std::byte> into) { file_.read(offset, into); }) {}

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const TensorTable& tensors() const { return tensors_; }

  /// Fills `into` with the bytes of a tensor of this file from its byte `first` on; it must have as many.
  /// Throws ConfigError where the file has become shorter or cannot be read.
  void read(const TensorEntry& tensor, std::uint64_t first, std::span<std::byte> into) const {
    assert(first <= tensor.bytes && into.size() <= tensor.bytes - first);
    file_.read(tensor.begin + first, into);
  }

 private:
  RegularFile file_;
  TensorTable tensors_;
};

/// A file to be written.
struct SafetensorsLayout {
  std::string head;                  ///< its first bytes: the header's length, and the header
  std::vector<TensorEntry> tensors;  ///< where the elements of each belong
  std::uint64_t file_bytes = 0;
};

/// Puts tensors, of which name, type and shape are given, one behind the other in the given order, from a multiple of 8
/// bytes on; each is aligned to its elements where those before it are no narrower. `metadata`: texts by name.
/// Throws ConfigError where the header is longer than readers accept.
[[nodiscard]] SafetensorsLayout lay_out(std::vector<TensorEntry> tensors,
                                        const std::map<std::string, std::string>& metadata = {});

/// Bytes of a tensor of that type and shape.
[[nodiscard]] std::uint64_t bytes_of(ElementType type, const std::vector<std::int64_t>& shape);

}  // namespace chimera
