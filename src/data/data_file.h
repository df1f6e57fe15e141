#pragma once
// Files that a run reads from again and again while it goes on.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/file_descriptor.h"

namespace chimera {

/// An open regular file of a known size, read by pread. It is not mapped: where a mapped file shrinks, the process is
/// killed (SIGBUS); this way it is an error that names the file. The system keeps one copy of its pages for all ranks.
class DataFile {
 public:
  /// Opens it. Throws ConfigError, naming the path, where it is missing, unreadable, not a regular file, or empty.
  explicit DataFile(const std::string& path);
  /// Takes an open file, such as one that exists in memory only, under a name for messages.
  DataFile(FileDescriptor file, std::string name);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes that it had when it was opened.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Fills `bytes` from byte `offset` on. Throws Error where the file has shrunk below that, or cannot be read.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  /// The number at byte `offset`.
  template <class Number>
  [[nodiscard]] Number number_at(std::int64_t offset) const {
    Number number{};
    read(offset, std::as_writable_bytes(std::span(&number, 1)));
    return number;
  }

  /// What tells whether the file is still the one that was read before.
  struct State {
    std::int64_t device = 0;
    std::int64_t inode = 0;
    std::int64_t size = 0;
    std::int64_t modified = 0;  ///< nanoseconds since 1970
    std::int64_t links = 0;     ///< names that it has; none where it exists in memory only
    friend bool operator==(const State&, const State&) = default;
  };
  [[nodiscard]] State state() const;

 private:
  FileDescriptor file_;
  std::string path_;
  std::int64_t size_ = 0;
};

/// Those bytes as a file that exists in memory only.
[[nodiscard]] DataFile file_in_memory(std::span<const std::byte> bytes, const std::string& name);

}  // namespace chimera
