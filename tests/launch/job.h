#pragma once
// One run of launch_test_rank, observed from outside.

#include <chrono>
#include <string>
#include <vector>

#include "support/program.h"

namespace chimera::testing {

/// A running job of launch_test_rank.
class Job {
 public:
  /// Starts `launch_test_rank RANKS ACTIONS...` with an action for each rank, and CHIMERA_FAULT if `fault` is not
  /// empty. `hang` is the launch plan's `hang`.
  explicit Job(const Words& actions, const std::string& fault = "", std::chrono::milliseconds hang = {});

  /// Returns when stdout has `count` lines.
  void await_lines(int count) { run_.await_output_lines(count); }
  /// Sends a signal to the launcher alone, or to every process, as a terminal does.
  void send(int signal_number) { run_.send(run_.process(), signal_number); }
  void send_to_all(int signal_number) { run_.send_to_all(signal_number); }
  /// Returns when no process of the job is left.
  ProgramResult wait() { return run_.wait(); }

 private:
  ProgramRun run_;
};

}  // namespace chimera::testing
