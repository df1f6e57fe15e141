#pragma once

// Safetensors files: a length, a JSON header (tensor_table.h), the raw elements. SafetensorsFile reads one. lay_out()
// plans a new one: since header and places are then known, several ranks can write their tensors at once.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/invariant.h"
#include "safetensors/regular_file.h"
#include "safetensors/tensor_table.h"

namespace chimera {

/// An open file. TensorTable checks its header; elements are read on demand. Any number of threads may read.
class SafetensorsFile {
 public:
  /// Throws ConfigError if the file cannot be read or is invalid.
  explicit SafetensorsFile(std::string path)
      : file_(std::move(path)),
        tensors_(file_.path(), file_.bytes(),
                 [this](std::uint64_t offset, std::span<std::byte> into) { file_.read(offset, into); }) {}

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const TensorTable& tensors() const { return tensors_; }

  /// Reads from byte `first` of the tensor on; the bytes must exist. Throws ConfigError if the file was cut or cannot
  /// be read.
  void read(const TensorEntry& tensor, std::uint64_t first, std::span<std::byte> into) const {
    require_invariant(first <= tensor.bytes && into.size() <= tensor.bytes - first, "a read is longer than its tensor");
    file_.read(tensor.begin + first, into);
  }

 private:
  RegularFile file_;
  TensorTable tensors_;
};

/// A file to write, known in advance so that several processes can write parts.
struct SafetensorsLayout {
  std::string head;  ///< header length and header
  std::vector<TensorEntry> tensors;
  std::uint64_t file_bytes = 0;
};

/// Places tensors (name, type, shape) contiguously in order, from a multiple of 8 bytes on. A tensor is aligned to its
/// elements if no earlier tensor has narrower elements. Throws ConfigError if the header is longer than readers accept.
[[nodiscard]] SafetensorsLayout lay_out(std::vector<TensorEntry> tensors,
                                        const std::map<std::string, std::string>& metadata = {});

[[nodiscard]] std::uint64_t bytes_of(ElementType type, const std::vector<std::int64_t>& shape);

}  // namespace chimera
