#pragma once

// Reads parts of a file by their byte offset, for large files such as weights. SafetensorsFile (safetensors_file.h)
// uses it.

#include <functional>
#include <span>

#include "core/file_descriptor.h"

namespace chimera {

/// Function that reads into.size() bytes of a file, from `offset` on. Throws if the file has fewer.
using ReadBytes = std::function<void(std::uint64_t offset, std::span<std::byte> into)>;

/// An open regular file. It is not memory-mapped: if another process truncates it, a read throws instead of raising
/// SIGBUS, and its pages do not count as resident memory. Any number of threads may read.
class RegularFile {
 public:
  /// Throws ConfigError if the file cannot be read or is not regular.
  explicit RegularFile(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns the size of the file when it was opened.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Reads into.size() bytes from `offset` on. Throws ConfigError if the file is shorter or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  FileDescriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace chimera
