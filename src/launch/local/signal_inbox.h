#pragma once
// The signals that ask a job to end as messages that can be read, instead of interruptions.

#include <signal.h>

#include <array>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace chimera {

/// From the first signal on, others within so long count as the same: `timeout`, batch systems and terminals that close
/// send theirs to the process and to its group.
inline constexpr std::chrono::milliseconds kSameSignal{500};

/// Exit code of a job that a signal has asked to end, and that has saved where it was: started again it goes on.
/// EX_TEMPFAIL of sysexits.h, for which batch systems can start a job again.
inline constexpr ExitCode kSavedExit{75};

/// What asks a run that saves checkpoints to save and end.
inline constexpr std::array kSavingSignals = {SIGTERM, SIGUSR1, SIGHUP};

/// What a shell says of a program that a signal has ended.
[[nodiscard]] constexpr int exit_code_of_signal(int signal_number) { return 128 + signal_number; }

/// While it lives, SIGINT, SIGTERM, SIGUSR1 and, unless it was ignored (nohup), SIGHUP of the calling thread are queued
/// here, and children can be waited for whatever was inherited for SIGCHLD. The process should have no other thread:
/// that one would still be interrupted.
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
  /// The number of the next waiting signal; nothing where none waits.
  [[nodiscard]] std::optional<int> next();
  /// Whether there is one, which stays.
  [[nodiscard]] bool waiting() const;

 private:
  FileDescriptor fd_;
  sigset_t previous_mask_{};
  struct sigaction previous_child_action_ {};
};

/// Waits between two starts of a job that saves checkpoints. Returns the exit code with which a signal ends the job,
/// one that comes meanwhile or that has come: after SIGINT that of the signal, else kSavedExit, as all that is to be
/// saved is saved. Nothing where no signal has come.
[[nodiscard]] std::optional<int> wait_between_starts(SignalInbox& signals, std::chrono::milliseconds pause);

}  // namespace chimera
