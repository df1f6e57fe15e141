#pragma once

// Child processes, signals and pipes of the launcher. SignalInbox makes signals readable from a descriptor, which
// poll() can wait for. ChildProcess owns a child process through its pidfd, a descriptor that refers to no other
// process even if the child has ended; the destructor kills the child. wait_for_exits() waits for exits, signals and
// input in one poll(). LineReader reads lines from a pipe. The supervisor (supervisor.h) and run_commands.h are loops
// around these classes.

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "core/file_descriptor.h"
#include "core/invariant.h"

namespace chimera {

inline constexpr int kMaxRanksOfHost = 1024;  ///< Maximum number of ranks of a host

/// Reads lines from a pipe: the failure reports of ranks, and the launcher's orders to a host. Keeps an incomplete line
/// until its end arrives. Borrows the descriptor.
class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Returns whether all writers have closed the pipe, or a line is longer than kLongestLine.
  [[nodiscard]] bool has_ended() const { return has_ended_; }

  /// Reads available bytes once. Blocks if there are none, unless the descriptor is nonblocking. Returns false if it
  /// has read none, as at the end of the pipe.
  bool read();
  /// Reads until nothing is available; requires a nonblocking descriptor.
  void read_available() {
    while (read()) {
    }
  }
  /// Returns the next complete line without its end.
  [[nodiscard]] std::optional<std::string> next();

  static constexpr std::size_t kLongestLine = std::size_t{1} << 20U;

 private:
  int descriptor_;
  std::string text_;
  bool has_ended_ = false;
};

/// Both ends of a pipe.
struct PipeEnds {
  FileDescriptor read;
  FileDescriptor write;
};
/// Creates a pipe. If `nonblocking`, reads do not wait. Throws Error if the system refuses.
[[nodiscard]] PipeEnds open_pipe(bool nonblocking);

/// Signals within this time count as one, because `timeout`, batch systems and closing terminals send a signal to the
/// process and again to its group.
inline constexpr std::chrono::milliseconds kSameSignal{500};

/// Exit code of a job that saved after a signal: EX_TEMPFAIL of sysexits.h, after which batch systems can restart it.
inline constexpr ExitCode kSavedExit{75};

/// Signals that make a run with checkpoints save and end.
inline constexpr std::array kSavingSignals = {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};

/// How a child process ended.
struct Ending {
  enum class Kind { Exited, Killed };
  Kind kind = Kind::Exited;
  int value = 0;  ///< Exit code, or signal number

  [[nodiscard]] constexpr bool has_exited_with(ExitCode code) const {
    return kind == Kind::Exited && value == static_cast<int>(code);
  }
  [[nodiscard]] constexpr bool was_killed_by(int signal_number) const {
    return kind == Kind::Killed && value == signal_number;
  }
};

/// Returns "signal 9 (Killed)".
[[nodiscard]] std::string describe_signal(int number);

/// Returns the exit code that shells use for a process that this signal ended.
[[nodiscard]] constexpr int exit_code_of_signal(int signal_number) { return 128 + signal_number; }

/// Returns the exit code of a process that exited, or exit_code_of_signal() if a signal ended it.
[[nodiscard]] constexpr int exit_code_of(const Ending& ending) {
  return ending.kind == Ending::Kind::Killed ? exit_code_of_signal(ending.value) : ending.value;
}

/// Queues SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and, unless it is ignored (nohup), SIGHUP, instead of their usual effect.
/// Blocks these signals only in the calling thread. Also resets the action of SIGCHLD, so that the process can wait for
/// children.
class SignalInbox {
 public:
  /// Throws Error if the system refuses.
  SignalInbox();
  SignalInbox& operator=(SignalInbox&&) = delete;
  /// Drops unread signals and restores the previous handling.
  ~SignalInbox();

  /// Returns a descriptor that is readable when a signal is pending.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Returns the number of the next pending signal, or nothing.
  [[nodiscard]] std::optional<int> next();
  /// Waits until a signal is pending, at most for `timeout`. Returns whether one is, without reading it.
  [[nodiscard]] bool has_signal(std::chrono::milliseconds timeout = {}) const;

 private:
  FileDescriptor fd_;
  sigset_t previous_mask_{};
  struct sigaction previous_child_action_ {};
};

/// Waits for `pause` between two attempts of a job that saves checkpoints. If a signal comes, returns the exit code
/// with which the job ends: 130 for SIGINT, else kSavedExit, because everything is already saved. Otherwise returns
/// nothing.
[[nodiscard]] std::optional<int> wait_between_starts(SignalInbox& signals, std::chrono::milliseconds pause);

/// Environment variables by name.
using Variables = std::map<std::string, std::string>;
/// Returns the environment of this process.
[[nodiscard]] Variables own_variables();

/// A main() function.
using ProgramEntry = int (*)(int argc, char** argv);

/// Program of a child process, its arguments and its environment.
struct Command {
  std::string executable;              ///< Looked up in PATH if it has no slash
  std::vector<std::string> arguments;  ///< argv[1..]
  Variables environment = {};          ///< Overrides inherited variables
  std::vector<int> descriptors = {};   ///< Open in the child under the same numbers
  /// If not null and safe_to_fork(), the child is a fork of this process, with its loaded libraries, and calls this
  /// function instead of running `executable`.
  ProgramEntry entry = nullptr;
  /// Standard input, output and error of an executable; -1: inherited.
  int input = -1;
  int output = -1;
  int errors = -1;

  /// Opens a descriptor in the child, and sets a variable to its number.
  void pass(const char* variable, int descriptor) {
    descriptors.push_back(descriptor);
    environment[variable] = std::to_string(descriptor);
  }
};

/// Returns the fields of /proc/PID/stat (proc(5)) from the state on; empty if there is no such process.
[[nodiscard]] std::vector<std::string> process_stat(pid_t process);

/// Returns whether this process has no threads except the main and console threads. Other threads may hold locks, which
/// would stay locked in a forked child.
[[nodiscard]] bool safe_to_fork();

/// Child process. The destructor kills and reaps it if it still runs.
class ChildProcess {
 public:
  /// Starts the child. In it, only SIGINT is blocked, SIGINT, SIGTERM and SIGCHLD have their default actions, and
  /// close-on-exec descriptors are closed, except command.descriptors. Throws Error if the system refuses.
  explicit ChildProcess(const Command& command);
  ChildProcess(ChildProcess&&) noexcept = default;
  /// Requires that the previous child was reaped.
  ChildProcess& operator=(ChildProcess&&) noexcept = default;
  ~ChildProcess();

  /// Returns false once reap() has returned the exit status.
  [[nodiscard]] bool is_running() const { return pidfd_.get() >= 0; }
  /// Returns a descriptor that is readable once the child has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  /// Sends a signal. Has no effect after the child has ended.
  void send(int signal_number) const;
  /// Returns the CPU time of all threads; 0 once the child has ended.
  [[nodiscard]] std::chrono::nanoseconds processor_time() const;
  /// Returns whether a signal has stopped the child (SIGSTOP, Ctrl-Z).
  [[nodiscard]] bool is_stopped() const;
  /// Returns whether the main thread is in an uninterruptible sleep.
  [[nodiscard]] bool is_waiting_for_disk() const;
  /// Returns the exit status once the child has ended, else nullopt. Call it only while is_running() returns true.
  [[nodiscard]] std::optional<Ending> reap();

 private:
  FileDescriptor pidfd_;
  pid_t pid_ = 0;  // not reused until the child is reaped
};

/// The end of a process in a list of them.
struct ChildExit {
  std::size_t index = 0;
  Ending ending;
};

/// Returns whether a process runs.
[[nodiscard]] bool has_running(const std::vector<ChildProcess>& processes);
/// Sends SIGKILL to all running processes.
void kill_running(const std::vector<ChildProcess>& processes);
/// Waits until a process exits, a signal is pending, `input` is readable (-1: none), or `deadline`; reaps processes
/// that have exited, and returns their ends by ascending index. Throws Error if the system refuses.
[[nodiscard]] std::vector<ChildExit> wait_for_exits(std::vector<ChildProcess>& processes, const SignalInbox& signals,
                                                    int input,
                                                    std::optional<std::chrono::steady_clock::time_point> deadline);

}  // namespace chimera
