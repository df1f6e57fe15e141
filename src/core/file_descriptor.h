#pragma once
// An owned file descriptor, and helpers for system calls that return -1 on failure.

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "core/error.h"

namespace chimera {

/// Raises the soft limit of open files (RLIMIT_NOFILE) of this process to the hard limit. Throws ConfigError if the
/// hard limit is below `needed`. Its message begins with `who` and ends with `remedy`: "4 ranks need 40 open files ...,
/// or use fewer ranks".
void require_descriptors(std::int64_t needed, const std::string& who, const std::string& remedy);

/// Owns a file descriptor, and closes it in the destructor. A default-constructed object is empty.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, kNone)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ != kNone) ::close(fd_);
  }

  /// Gives up ownership; the caller closes the descriptor.
  [[nodiscard]] int release() { return std::exchange(fd_, kNone); }

  /// Returns the descriptor; negative if empty.
  [[nodiscard]] int get() const { return fd_; }

 private:
  static constexpr int kNone = -1;
  int fd_ = kNone;
};

/// Returns the system's text for an errno.
[[nodiscard]] inline std::string system_message(int error_number) {
  return std::generic_category().message(error_number);
}

/// Returns `result`. Throws Error("cannot WHAT: reason") if it is negative.
inline int check_system(int result, const std::string& what) {
  if (result < 0) throw Error("cannot " + what + ": " + system_message(errno));
  return result;
}

/// Creates an unnamed file of `bytes` zeros for shared memory (memfd_create). It is freed with its last descriptor or
/// mapping. Other processes open it as /proc/PID/fd/N; /proc/PID/maps shows `name`. If a system call filter forbids
/// memfd_create, the file is in /dev/shm or, if that fails, in $TMPDIR (/tmp), and its space is reserved. Throws
/// Error("cannot make shared memory of N bytes: ...").
[[nodiscard]] FileDescriptor make_memory_file(const char* name, std::size_t bytes);

}  // namespace chimera
