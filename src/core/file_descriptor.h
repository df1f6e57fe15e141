#pragma once
// Ownership of a POSIX file descriptor.

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace chimera {

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

}  // namespace chimera
