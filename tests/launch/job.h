#pragma once
// One run of launch_test_rank, watched from outside: what it says, how it ends, and what it leaves behind.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace chimera {

struct JobResult {
  int exit_code = -1;                        ///< of the launcher; -1 where a signal killed it
  int killed_by = 0;                         ///< that signal
  std::string output;                        ///< stdout of all processes
  std::string messages;                      ///< stderr of all processes
  int orphans = 0;                           ///< ranks that the launcher did not wait for
  std::size_t files_left = 0;                ///< in its TMPDIR, which is its working directory too
  std::chrono::milliseconds ending_time{0};  ///< from the last mark() until the last process was gone
};

/// A running job in a process group of its own. Its orphans become children of this process, which awaits their end.
class Job {
 public:
  /// Starts `launch_test_rank RANKS ACTIONS...` with CHIMERA_FAULT set where `fault` is not empty. `hang`: that of the
  /// launch plan.
  Job(int ranks, const std::vector<std::string>& actions, const std::string& fault = "",
      std::chrono::milliseconds hang = {});
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  /// Returns when so many lines are on stdout.
  void await_lines(int count);
  /// Sends a signal to the launcher alone, or to every process, as a terminal does. Starts the clock anew.
  void send(int signal_number);
  void send_to_all(int signal_number);
  /// Returns when no process of the job is left. After 10 s it kills them, and the test fails.
  JobResult wait();

 private:
  void start(const std::vector<std::string>& arguments, const std::string& fault, std::chrono::milliseconds hang);
  bool read_some();
  void mark() { clock_start_ = std::chrono::steady_clock::now(); }

  std::filesystem::path directory_;
  pid_t launcher_ = 0;
  FileDescriptor output_;
  FileDescriptor messages_;
  bool output_open_ = true;
  bool messages_open_ = true;
  bool finished_ = false;
  JobResult result_;
  std::chrono::steady_clock::time_point clock_start_;
};

}  // namespace chimera
