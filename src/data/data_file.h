#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/file_descriptor.h"

// Files that a run reads from again and again while it goes on.

// Hashes of whole files, by which ranks find out that they read the same data.

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

/// Where hashes of large files are kept, so that the next run (and every rank of this one) need not read a terabyte to
/// know that it is the same one.
struct HashCache {
  std::string folder = {};                            ///< made where it is missing; empty: nothing is kept
  std::int64_t least_bytes = std::int64_t{64} << 20;  ///< of a file whose hash is kept; others are read each time
};

/// $XDG_CACHE_HOME/chimera/hashes, or else ~/.cache/chimera/hashes.
[[nodiscard]] HashCache default_hash_cache();

/// XXH3, 64 bits, of all bytes of a file. One that is kept counts as long as device, inode, size and the time of the
/// last change are those of then; of a file that changes while it is read nothing is kept, and a cache that cannot be
/// written is no error. `progress` is called now and then while the file is read.
[[nodiscard]] std::uint64_t content_hash(const DataFile& file, const HashCache& cache,
                                         const std::function<void()>& progress);

}  // namespace chimera
