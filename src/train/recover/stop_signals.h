#pragma once

// Signals that ask a job with checkpoints to save and end, as batch systems send them before they end a job. The
// handler only stores the request. Checkpointer reads it in each step and votes for a stop, so that all ranks save the
// same step and end after it.

#include <signal.h>

#include <array>

#include "launch/local/process.h"

namespace chimera {

/// Handles SIGTERM, SIGUSR1 and SIGHUP (unless ignored, as by nohup) during its lifetime. A signal to any rank requests
/// that the run saves and ends. Only one instance may exist.
class StopSignals {
 public:
  /// Reaction to a signal at least kSameSignal after the first.
  enum class Second : bool {
    Nothing,      ///< The launcher decides
    EndsProcess,  ///< Exits immediately with exit_code_of_signal()
  };
  explicit StopSignals(Second second);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// Restores the handlers and clears the request.
  ~StopSignals();

  /// Call when only the process exit remains.
  void ignore_all();

 private:
  std::array<struct sigaction, kSavingSignals.size()> before_{};
};

[[nodiscard]] bool stop_requested() noexcept;

}  // namespace chimera
