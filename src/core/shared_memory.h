#pragma once
// Memory that ranks of one host share without a common parent: a rank creates a memory file and sends its address, and
// another rank maps the file by it. Sums of gradients on a host use it (transport/gloo/shared_sum.h).

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/file_descriptor.h"

namespace chimera {

/// Address of shared memory, valid in other processes of the host.
struct SharedAddress {
  std::int64_t process = 0;
  std::int64_t descriptor = 0;
  std::int64_t file = 0;    // Inode, because descriptors are reused
  std::int64_t offset = 0;  // Position in bytes
};

/// A mapped memory file. Its pages are freed when no process maps them.
class SharedMemory {
 public:
  /// Creates a file of `bytes` zeros. Throws Error if the system refuses.
  explicit SharedMemory(std::size_t bytes);
  /// Maps the whole file at an address. Throws Error if it cannot be opened, or if the descriptor belongs to another
  /// file now.
  explicit SharedMemory(const SharedAddress& address);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Returns the address of the first byte. Requires that this object created the file.
  [[nodiscard]] SharedAddress address() const;

 private:
  void map();

  FileDescriptor file_;
  std::int64_t inode_ = 0;
  std::size_t size_ = 0;
  std::byte* data_ = nullptr;
};

/// Returns the shared address of `address`, or nothing if it is not in a live SharedMemory that this process created.
[[nodiscard]] std::optional<SharedAddress> shared_address(const void* address);

}  // namespace chimera
