#pragma once
// SIGINT and SIGTERM as messages that can be read, instead of interruptions.

#include <signal.h>

#include <optional>

#include "core/file_descriptor.h"

namespace chimera {

/// While it lives, SIGINT and SIGTERM of the calling thread are queued here, and children can be waited for whatever
/// was inherited for SIGCHLD. The process should have no other thread: that one would still be interrupted.
class SignalInbox {
 public:
  /// Throws Error where the system refuses.
  SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;
  /// Drops what was not read and restores what was in force before.
  ~SignalInbox();

  /// Becomes readable when a signal is waiting.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The next waiting signal, SIGINT or SIGTERM; nothing where none waits.
  [[nodiscard]] std::optional<int> next();

 private:
  FileDescriptor fd_;
  sigset_t previous_mask_{};
  struct sigaction previous_child_action_ {};
};

}  // namespace chimera
