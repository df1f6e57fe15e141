#pragma once
// Memory that ranks of one host share, even if no common parent process created it. One rank creates a memory file and
// sends its SharedAddress to another rank, which maps the file. All-reduces between ranks of one host use it
// (transport/gloo/shared_sum.h).

#include <optional>

#include "core/file_descriptor.h"

namespace chimera {

/// Address of shared memory, valid in other processes of the host.
struct SharedAddress {
  std::int64_t process = 0;     // Process id of the creator
  std::int64_t descriptor = 0;  // File descriptor in that process
  std::int64_t file = 0;        // Inode, which detects that the descriptor belongs to another file now
  std::int64_t offset = 0;      // Position in the file, in bytes
};

/// A mapped memory file. Its pages are freed when no process maps them.
class SharedMemory {
 public:
  /// Creates a file of `bytes` zeros. Throws Error if the system refuses.
  explicit SharedMemory(std::size_t bytes);
  /// Maps the whole file that `address` names. Throws Error if it cannot be opened, or if the descriptor belongs to
  /// another file now.
  explicit SharedMemory(const SharedAddress& address);
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  /// Returns the first byte; null if the size is 0.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Returns the address of the first byte. Requires that this object created the file. It must live until the other
  /// process has mapped the file, because that process opens the file through this one.
  [[nodiscard]] SharedAddress address() const;

 private:
  void map();

  FileDescriptor file_;
  std::int64_t inode_ = 0;
  std::size_t size_ = 0;
  std::byte* data_ = nullptr;
};

/// Returns the shared address of a pointer, or nothing if it does not point into a SharedMemory that this process
/// created and has not destroyed. Thread-safe.
[[nodiscard]] std::optional<SharedAddress> shared_address(const void* address);

}  // namespace chimera
