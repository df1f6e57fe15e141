#pragma once
// Memory that other processes of the same host can map: a memory file of Linux, found by process and descriptor.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/file_descriptor.h"

namespace chimera {

/// Where another process finds memory of this one.
struct SharedAddress {
  std::int64_t process = 0;
  std::int64_t descriptor = 0;
  std::int64_t file = 0;    // the memory file's inode: descriptors are used again
  std::int64_t offset = 0;  // bytes
};

/// A mapped memory file; unmapped at the end. The pages go with the last process that maps them.
class SharedMemory {
 public:
  /// Makes a file of `bytes` zeros. Throws Error where the system gives none.
  explicit SharedMemory(std::size_t bytes);
  /// Maps the whole file that another process (or this one) has there. Throws Error where that is not on this host, may
  /// not be opened, or is another file by now.
  explicit SharedMemory(const SharedAddress& address);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The address of the first byte. Requires that this process has made the file.
  [[nodiscard]] SharedAddress address() const;

 private:
  void map();

  FileDescriptor file_;
  std::int64_t inode_ = 0;
  std::size_t size_ = 0;
  std::byte* data_ = nullptr;
};

/// Where other processes find the byte at `address`; nothing unless it lies in a SharedMemory that this process has
/// made and that is alive.
[[nodiscard]] std::optional<SharedAddress> shared_address(const void* address);

}  // namespace chimera
