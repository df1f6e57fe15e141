#pragma once
// Tensors in a file that every framework reads: safetensors. A u64 length, a JSON header, the raw elements.

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "safetensors/regular_file.h"
#include "safetensors/tensor_table.h"

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

}  // namespace chimera
