#pragma once

// Reads a file by offset, for files whose size decides what is read, such as weights.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/file_descriptor.h"

namespace chimera {

/// Reads bytes of a file. Throws if the file has fewer.
using ReadBytes = std::function<void(std::uint64_t offset, std::span<std::byte> into)>;

/// The file is not mapped: a file that shrinks then causes an error instead of a signal, and its pages do not count as
/// resident memory. Any number of threads may read.
class RegularFile {
 public:
  /// Throws ConfigError if the file cannot be read or is not regular.
  explicit RegularFile(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Size when opened.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Throws ConfigError if the file ends earlier or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  FileDescriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace chimera
