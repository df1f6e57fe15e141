#pragma once
// Runs of the built program `chimera`, or of another program, observed from outside: output, exit code and leftovers.

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "support/scratch.h"
#include "support/words.h"

namespace chimera::testing {

/// A program without output for this long hangs; sanitizers make everything many times slower.
#ifdef CHIMERA_SANITIZED
inline constexpr std::chrono::seconds kPatience{300};
#else
inline constexpr std::chrono::seconds kPatience{60};
#endif

struct ProgramSetup {
  std::string input{};                     ///< standard input; at most a pipe's capacity unless the program reads it
  std::vector<std::string> environment{};  ///< NAME=value, added to this process's environment
  int ranks = 0;                           ///< number of ranks that the job starts, to observe their deaths
  /// time limit without any event; then all processes are killed and the test fails
  std::chrono::seconds deadline = kPatience;
  std::function<void()> in_process{};  ///< called in the new process before it becomes the program
  std::optional<int> messages{};       ///< its stderr, instead of a pipe that is read; closed if negative
  std::optional<int> output{};         ///< its stdout, with the same meaning
  std::string program{};               ///< instead of program_path()
  /// Forks this process, which has loaded the training half, instead of starting the program. Saves a fifth of a
  /// second, the loading time of LibTorch. Only for commands that do not start the program again.
  bool is_copy = false;
};

/// Returns the path of the program under test: CHIMERA_PROGRAM in the environment, or the one of this build.
[[nodiscard]] std::string program_path();

/// Returns true if the program loads its training half for the subcommand in the arguments.
[[nodiscard]] bool needs_training_half(const Words& arguments);

struct ProgramResult {
  int exit_code = -1;       ///< -1 if a signal killed it
  int killed_by = 0;        ///< that signal, or 0
  std::string output;       ///< stdout of all its processes
  std::string messages;     ///< stderr of all its processes
  int orphans = 0;          ///< processes that it did not wait for
  bool left_files = false;  ///< files left in its TMPDIR, which is also its working directory, or in /dev/shm
};

/// A running program in a process group of its own. Orphans become children of this process, which waits for them. A
/// process may have only one at a time.
class ProgramRun {
 public:
  explicit ProgramRun(const Words& arguments, ProgramSetup setup = {});
  ProgramRun& operator=(ProgramRun&&) = delete;
  ~ProgramRun();

  /// Returns when stderr contains `text`. Fails the test if the program ends without it.
  void await_message(const std::string& text);
  /// Returns when stdout has `count` lines, or the program has ended.
  void await_output_lines(int count);
  /// Returns when all its ranks have started, or the program has ended.
  void await_ranks();
  /// Returns after this time, or when the program has ended.
  void watch_for(std::chrono::microseconds time);
  /// The process of the program, and the processes of its ranks. Ranks are known after await_ranks() or a message from
  /// them.
  [[nodiscard]] pid_t process() const { return process_; }
  [[nodiscard]] pid_t rank(int rank) const;
  /// Sends a signal to one process, or to all processes, as a terminal does.
  void send(pid_t process, int signal_number) { ::kill(process, signal_number); }
  void send_to_all(int signal_number) { send(-process_, signal_number); }
  /// Returns when no process is left.
  ProgramResult wait();

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    pid_t process = 0;
    FileDescriptor pidfd;  // empty once it has died
  };

  void start(const Words& arguments);
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
  bool finished_ = false;
  ProgramResult result_;
};

/// Runs the program to its end. If it trains or generates, runs it in a fork of this process, which must not have
/// computed with several threads.
[[nodiscard]] ProgramResult run_program(const Words& arguments, const std::string& input = "");
/// Expects that the program has succeeded. Returns the result.
ProgramResult succeeded(ProgramResult result, int line = __builtin_LINE());
/// Expects that no process has outlived the program, and that no file is left.
void expect_clean(const ProgramResult& result);
/// Expects that the program succeeds, and returns its output.
[[nodiscard]] std::string output_of(const Words& arguments, const std::string& input = "");

}  // namespace chimera::testing
