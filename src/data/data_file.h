#pragma once

// A file of training data. It stays open during a run and is read by offset. It is never mapped into memory: if someone
// truncated a mapped file, SIGBUS would kill the process without a message. A resumed run, and the ranks of several
// hosts, compare content hashes to check that they read the same data.

#include <functional>
#include <span>

#include "core/file_descriptor.h"

namespace chimera {

/// An open regular file, read by pread. Any number of threads may read.
class DataFile {
 public:
  /// Throws ConfigError if the file is unreadable, not regular, or empty.
  explicit DataFile(const std::string& path);
  /// `name` is for messages.
  DataFile(FileDescriptor file, std::string name);

  /// Returns the path or the name that the constructor received.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns the bytes that the file had when it was opened.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Fills `bytes` with the file's bytes from `offset` on. Throws Error if the file has shrunk or cannot be read.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  /// Reads a number in the machine's byte order.
  template <class Number>
  [[nodiscard]] Number number_at(std::int64_t offset) const {
    Number number{};
    read(offset, std::as_writable_bytes(std::span(&number, 1)));
    return number;
  }

 private:
  [[nodiscard]] std::int64_t size_now() const;

  FileDescriptor file_;
  std::string path_;
  std::int64_t size_ = 0;
};

/// Returns a file in memory with these bytes, for tokens that were not read from a file. `name` is for messages. Throws
/// Error if there is not enough memory.
[[nodiscard]] DataFile file_in_memory(std::span<const std::byte> bytes, const std::string& name);

/// Size of the blocks that content_hash() reads.
inline constexpr std::int64_t kHashedBlock = 64 << 10;

/// Returns the XXH3 hash (64 bits) of the whole file if `samples` is 0. Otherwise hashes the size and that many blocks,
/// at least two, evenly spread from the first byte to the last, or all blocks if there are no more. This detects other
/// data quickly, but may miss a change of a few bytes. Calls `progress`, which must not be empty, after each block.
/// Throws the errors of DataFile::read().
[[nodiscard]] std::uint64_t content_hash(const DataFile& file, std::int64_t samples,
                                         const std::function<void()>& progress);

}  // namespace chimera
