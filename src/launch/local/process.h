#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "launch/local/failure_report.h"

// The signals that ask a job to end as messages that can be read, instead of interruptions.

// The process of one rank: started by exec or fork, signalled and awaited through a pidfd.

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

/// What main() calls, or is.
using ProgramEntry = int (*)(int argc, char** argv);

/// What a program is started with.
struct Command {
  std::string executable;                ///< looked up in PATH where it has no slash
  std::vector<std::string> arguments;    ///< argv[1..]
  std::vector<std::string> environment;  ///< NAME=value, on top of this process's own variables
  std::vector<int> descriptors;          ///< stay open in the program, under the same numbers
  /// In place of the executable, this is run in a fork of this process where that is safe (see safe_to_fork()). It
  /// finds loaded what this process has loaded, in memory that both share. Null: always the executable.
  ProgramEntry entry = nullptr;
  /// Become the standard input, output and error of an executable; -1: those of this process.
  int input = -1;
  int output = -1;
  int errors = -1;
};

/// Whether this process has no threads but those of its consoles, whose part in a fork is known. Other threads may hold
/// locks, or be waited for, in a child that does not have them.
[[nodiscard]] bool safe_to_fork();

/// A started child, owned: one that still runs when its owner goes is killed and reaped.
class ChildProcess {
 public:
  /// Starts `command`, by posix_spawn where it is an executable. Either way the child begins with SIGINT blocked and
  /// nothing else, and with the default actions of SIGINT, SIGTERM and SIGCHLD, and has no descriptors that are closed
  /// on exec. Throws Error where the system refuses.
  explicit ChildProcess(const Command& command);
  ChildProcess(ChildProcess&&) noexcept = default;
  /// Requires that the child that was owned before is reaped.
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    pidfd_ = std::move(other.pidfd_);
    pid_ = other.pid_;
    return *this;
  }
  ~ChildProcess();

  /// False once reap() has returned its ending.
  [[nodiscard]] bool running() const { return pidfd_.get() >= 0; }
  /// Becomes readable when the child has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  /// Sends a signal to a running child; one that has ended and is not yet reaped takes no notice.
  void send(int signal_number) const;
  /// Processor time that it has taken so far, on all cores and of all its threads; 0 once it has ended.
  [[nodiscard]] std::chrono::nanoseconds processor_time() const;
  /// Whether a signal has stopped it (SIGSTOP, Ctrl-Z) and none continued it since.
  [[nodiscard]] bool stopped() const;
  /// Whether its main thread is in an uninterruptible sleep: it waits for a disk, or for memory that one has.
  [[nodiscard]] bool waits_for_disk() const;
  /// How the child ended, once; nothing while it runs. Never waits.
  [[nodiscard]] std::optional<Ending> reap();

 private:
  FileDescriptor pidfd_;
  pid_t pid_ = 0;  // stays the child's as long as it is not reaped
};

}  // namespace chimera
