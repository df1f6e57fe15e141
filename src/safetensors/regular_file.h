#pragma once
// A file that is read here and there.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/file_descriptor.h"

namespace chimera {

/// A regular file open for reading. It is read by calls, not through a mapping: a file that shrinks meanwhile is then
/// an error and no signal, and what is read counts in nobody's resident set. Any number of threads may read.
class RegularFile {
 public:
  /// Throws ConfigError where the file cannot be read or is not a regular one.
  explicit RegularFile(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// When it was opened.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Fills `into` from byte `offset` on. Throws ConfigError where the file ends before, or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  FileDescriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace chimera
