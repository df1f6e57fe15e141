#pragma once
// One run of launch_test_rank, observed from outside: its output, its exit code and the files it leaves.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace chimera {

struct JobResult {
  int exit_code = -1;                        ///< of the launcher; -1 if a signal killed it
  int killed_by = 0;                         ///< that signal, or 0
  std::string output;                        ///< stdout of all processes
  std::string messages;                      ///< stderr of all processes
  int orphans = 0;                           ///< ranks that the launcher did not wait for
  std::size_t files_left = 0;                ///< files left in TMPDIR, which is also the working directory
  std::chrono::milliseconds ending_time{0};  ///< from the last mark() to the end of the last process
};

/// A running job in a process group of its own. Orphans become children of this process, which waits for them.
class Job {
 public:
  /// Starts `launch_test_rank RANKS ACTIONS...`, with CHIMERA_FAULT set if `fault` is not empty. `hang` is the launch
  /// plan's `hang`.
  Job(int ranks, const std::vector<std::string>& actions, const std::string& fault = "",
      std::chrono::milliseconds hang = {});
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  /// Returns when stdout has `count` lines.
  void await_lines(int count);
  /// Sends a signal to the launcher alone, or to every process, as a terminal does. Restarts the clock.
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
