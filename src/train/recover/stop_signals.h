#pragma once

// Handles the signals that ask a job with checkpoints to save and end; batch systems send them before they kill a job.
// The signal handler only sets a flag. In each step, the Checkpointer (checkpointer.h) reads the flag with
// stop_requested() and adds it to the all-reduce at the end of the step, so that all ranks save and end after the same
// step.

#include <signal.h>

#include "launch/local/process.h"

namespace chimera {

/// Handles kSavingSignals during its lifetime: SIGTERM, SIGUSR1, SIGUSR2 and, unless it is ignored (nohup), SIGHUP. A
/// signal to any rank requests that the run saves and ends. Only one instance may exist.
class StopSignals {
 public:
  /// Reaction to a second signal. A signal less than kSameSignal (0.5 s) after the first counts as the same signal.
  enum class Second : bool {
    Nothing,      ///< None, because the launcher reacts to it
    EndsProcess,  ///< Exits immediately with exit_code_of_signal()
  };
  explicit StopSignals(Second second);
  StopSignals& operator=(StopSignals&&) = delete;
  /// Restores the handlers and clears the request.
  ~StopSignals();

  /// Ignores these signals from now on, also after the destructor. Call it when everything is saved and the process is
  /// about to exit.
  void ignore_all();

 private:
  std::array<struct sigaction, kSavingSignals.size()> before_{};
};

/// Returns whether this process has received a signal since the StopSignals was made.
[[nodiscard]] bool stop_requested() noexcept;

}  // namespace chimera
