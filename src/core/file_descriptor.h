#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

// How many files this process may have open at once.

// Ownership of a POSIX file descriptor.

// Files without a name, for memory that several processes share.

namespace chimera {

/// Raises the soft limit of open files (RLIMIT_NOFILE) to the hard one, for this process and those that it starts.
/// Throws ConfigError where that is below `needed`; `who` is what needs them and `remedy` what needs fewer: "4 ranks
/// need 40 open files ..., or use fewer ranks".
void require_descriptors(std::int64_t needed, const std::string& who, const std::string& remedy);

/// Owns one descriptor and closes it; empty when default-constructed or moved from.
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

  /// Gives the descriptor away: whoever takes the number closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, kNone); }

  /// The number; negative when empty.
  [[nodiscard]] int get() const { return fd_; }

 private:
  static constexpr int kNone = -1;
  int fd_ = kNone;
};

/// What errno says, as text: "No such file or directory".
[[nodiscard]] inline std::string system_message(int error_number) {
  return std::generic_category().message(error_number);
}

/// The result of a system call that must not fail. Throws Error("cannot WHAT: reason") where it is negative.
inline int check_system(int result, const std::string& what) {
  if (result < 0) throw Error("cannot " + what + ": " + system_message(errno));
  return result;
}

/// A new file of `bytes` zeros that has no name and goes with the last process that has it open or maps it. Others open
/// it as /proc/PID/fd/N. It lies in memory (memfd_create). Where the system refuses that, as filters of system calls
/// do, it is a nameless file in /dev/shm or else in $TMPDIR (/tmp), where room for it is taken at once, so that no
/// write to its mapping can fail later.
/// `name` is what /proc/PID/maps shows. Throws Error("cannot make shared memory of N bytes: ...") where all are
/// refused.
[[nodiscard]] FileDescriptor make_memory_file(const char* name, std::size_t bytes);

}  // namespace chimera
