#pragma once
// Runs of the built program `chimera`, watched from outside: what it says, how it ends, what it leaves behind.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "support/scratch.h"

namespace chimera::testing {

/// A program that says nothing for so long hangs; with sanitizers all takes many times as long.
#ifdef CHIMERA_SANITIZED
inline constexpr std::chrono::seconds kPatience{300};
#else
inline constexpr std::chrono::seconds kPatience{60};
#endif

struct ProgramSetup {
  std::string input{};                     ///< what standard input reads; at most a pipe's capacity unless it is read
  std::vector<std::string> environment{};  ///< NAME=value, on top of this process's
  int ranks = 0;                           ///< of the job it will start; their deaths are then observed
  std::chrono::seconds deadline = kPatience;  ///< without any news; then everything is killed and the test fails
  std::function<void()> in_process{};         ///< called in the new process, before it becomes the program
  std::optional<int> messages{};              ///< what it has as stderr in place of a pipe that is read; negative: none
  std::optional<int> output{};                ///< what it has as stdout, likewise
  /// The new process is a copy of this one, which has loaded the training half, and not the program started anew:
  /// spares the fifth of a second that LibTorch takes to load. For command lines that start no program anew.
  bool is_copy = false;
};

/// Whether the arguments are those of a subcommand for which the program loads its training half.
[[nodiscard]] bool needs_training_half(const std::vector<std::string>& arguments);

struct ProgramResult {
  int exit_code = -1;       ///< -1 where a signal killed it
  int killed_by = 0;        ///< that signal
  std::string output;       ///< stdout of all its processes
  std::string messages;     ///< stderr of all its processes
  int orphans = 0;          ///< processes that it did not wait for
  bool left_files = false;  ///< in its private TMPDIR, which is its working directory too, or in /dev/shm
  std::chrono::milliseconds ending_time{0};  ///< from the first death or signal until the last process was gone
};

/// A running program in a process group of its own. Its orphans become children of this process, which awaits their
/// end. One at a time in a process.
class ProgramRun {
 public:
  explicit ProgramRun(const std::vector<std::string>& arguments, ProgramSetup setup = {});
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;
  ~ProgramRun();

  /// Returns when `text` stands on stderr, or the program has ended without saying it, which fails the test.
  void await_message(const std::string& text);
  /// Returns when all its ranks have started, or the program has ended.
  void await_ranks();
  /// Returns after so long, or when the program has ended.
  void watch_for(std::chrono::microseconds time);
  /// The process of the program itself, and, once they are awaited or a message came from them, those of its ranks, in
  /// order.
  [[nodiscard]] pid_t process() const { return process_; }
  [[nodiscard]] pid_t rank(int rank) const;
  /// Sends a signal to one process, or to all of them, as a terminal does.
  void send(pid_t process, int signal_number);
  void send_to_all(int signal_number) { send(-process_, signal_number); }
  /// Returns when no process is left.
  ProgramResult wait();

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    pid_t process = 0;
    FileDescriptor pidfd;  // empty once it has died
  };

  void start(const std::vector<std::string>& arguments);
  bool read_some(std::optional<Clock::time_point> until = {});
  void look_for_ranks();
  [[nodiscard]] bool all_ranks_known() const;
  void reap();

  ProgramSetup setup_;
  Scratch directory_;
  std::vector<std::string> shared_memory_before_;
  pid_t process_ = 0;
  FileDescriptor output_;
  FileDescriptor messages_;
  bool output_open_ = true;
  bool messages_open_ = true;
  std::vector<Watched> watched_;  // the program, then its ranks
  Clock::time_point last_news_ = Clock::now();
  std::optional<Clock::time_point> first_death_;
  bool finished_ = false;
  ProgramResult result_;
};

/// Runs the program to its end; where it trains or generates, in a copy of this process, which must not have
/// computed with several threads.
[[nodiscard]] ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input = "");

}  // namespace chimera::testing
