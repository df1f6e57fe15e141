#pragma once
// The signals that ask a run to save where it is, and to end there.

#include <signal.h>

#include <array>

#include "launch/local/process.h"

namespace chimera {

/// While it lives, SIGTERM, SIGUSR1 and, unless it was ignored (nohup), SIGHUP ask the run in this process to save
/// after a step that is near, the same on all ranks, and to end. It is enough that one rank is asked. One at a time.
class StopSignals {
 public:
  /// What one that comes kSameSignal after the first or later does.
  enum class Second : bool {
    Nothing,      ///< the launcher gets it too, and decides
    EndsProcess,  ///< at once, with exit_code_of_signal()
  };
  explicit StopSignals(Second second);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// Restores what was in force before; nothing is asked for any more.
  ~StopSignals();

  /// To be called when all is done but the end of the process: from now on, and after its life, signals do nothing.
  void ignore_all();

 private:
  std::array<struct sigaction, kSavingSignals.size()> before_{};
};

/// Whether such a signal has come.
[[nodiscard]] bool stop_requested() noexcept;

}  // namespace chimera
