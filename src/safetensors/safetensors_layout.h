#pragma once

// Files of weights in the safetensors format: the length of the header, a JSON header (tensor_table.h), and the raw
// elements of all tensors. SafetensorsFile reads a file. lay_out() plans a new file before it is written: with the
// positions of all tensors, several ranks can write their tensors at the same time.

#include "core/invariant.h"
#include "safetensors/regular_file.h"
#include "safetensors/tensor_table.h"

namespace chimera {

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
/// earlier tensor has narrower elements. Throws ConfigError if the header is longer than kMaxHeaderBytes
/// (tensor_table.h), the limit of readers.
[[nodiscard]] SafetensorsLayout lay_out(std::vector<TensorEntry> tensors,
                                        const std::map<std::string, std::string>& metadata = {});

/// Returns the size of a tensor in bytes. Its elements must make whole bytes.
[[nodiscard]] std::uint64_t bytes_of(ElementType type, const std::vector<std::int64_t>& shape);

}  // namespace chimera
