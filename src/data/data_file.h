#pragma once

// A file of training data. It stays open during a run, and is read by offset. It is not mapped into memory, so a run
// ends with an error message if someone truncates the file. A resumed run compares the content hash to verify that its
// data is unchanged. Hashes of large files are cached.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/file_descriptor.h"

namespace chimera {

/// An open regular file, read by pread. (If a mapped file shrinks, SIGBUS kills the process.)
class DataFile {
 public:
  /// Throws ConfigError if the file is unreadable, not regular, or empty.
  explicit DataFile(const std::string& path);
  /// `name` is for messages.
  DataFile(FileDescriptor file, std::string name);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns the size when opened.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Fills `bytes` from `offset` on. Throws Error if the file has shrunk or cannot be read.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  /// Reads a number in the machine's byte order.
  template <class Number>
  [[nodiscard]] Number number_at(std::int64_t offset) const {
    Number number{};
    read(offset, std::as_writable_bytes(std::span(&number, 1)));
    return number;
  }

  /// Identity of a file version.
  struct State {
    std::int64_t device = 0;
    std::int64_t inode = 0;
    std::int64_t size = 0;
    std::int64_t modified = 0;  ///< nanoseconds since 1970
    std::int64_t changed = 0;   ///< ctime in nanoseconds, which programs cannot set
    std::int64_t links = 0;     ///< hard links; 0 for a file in memory
    friend bool operator==(const State&, const State&) = default;
  };
  /// Returns the state of the file now.
  [[nodiscard]] State state() const;

 private:
  FileDescriptor file_;
  std::string path_;
  std::int64_t size_ = 0;
};

/// Returns a file in memory with these bytes, for tokens that were not read from a file. `name` is for messages.
[[nodiscard]] DataFile file_in_memory(std::span<const std::byte> bytes, const std::string& name);

/// Cache of hashes of large files, shared by ranks and later runs.
struct HashCache {
  std::string folder = {};                            ///< created if missing; empty: no cache
  std::int64_t least_bytes = std::int64_t{64} << 20;  ///< smaller files are not cached
};

/// Returns the cache in $XDG_CACHE_HOME/chimera/hashes or ~/.cache/chimera/hashes.
[[nodiscard]] HashCache default_hash_cache();

/// Returns the XXH3 hash (64 bits) of the file's bytes. A cached hash is valid until the file's State changes. Errors
/// of writing the cache are ignored. Calls `progress` with the bytes hashed so far after each block.
[[nodiscard]] std::uint64_t content_hash(const DataFile& file, const HashCache& cache,
                                         const std::function<void(std::int64_t bytes)>& progress);

}  // namespace chimera
