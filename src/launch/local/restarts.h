#pragma once

// Decides whether and when a failed job may try again. The same policy serves restarts of a job (launcher.h) and
// recoveries of lost ranks (recovery.h); only the words of its messages differ. It starts no processes: the caller acts
// on its advice.

#include <chrono>
#include <cstdint>
#include <string>

namespace chimera {

/// Words for messages.
struct RestartWords {
  const char* again = "restarted";      ///< What happens again, as in "not restarted: ..."
  const char* flag = "--max-restarts";  ///< Flag that limits the number
};

/// Restart policy. If a job fails at a later step than ever before, it restarts at once. Otherwise it waits before the
/// restart, from kFirstPause to kLongestPause, twice as long after each further failure. It gives up after kSameStep
/// failures in a row in the same step, or after `max_restarts` restarts.
class Restarts {
 public:
  static constexpr int kSameStep = 3;
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};

  explicit Restarts(int max_restarts, RestartWords words = {}) : max_restarts_(max_restarts), words_(words) {}

  /// Whether and when to restart after a failure.
  struct Advice {
    bool again = false;             ///< Whether to restart
    std::chrono::seconds pause{0};  ///< Time to wait before
    std::string why_not = "";       ///< Message if `again` is false; empty if the maximum is 0
  };
  /// Counts a failure and returns what to do. `step` is the failed step, from 1; 0: before the first step.
  [[nodiscard]] Advice after_failure(std::int64_t step);
  /// Returns the number of restarts so far.
  [[nodiscard]] int done() const { return done_; }

 private:
  int max_restarts_;
  RestartWords words_;
  int done_ = 0;
  int failures_in_step_ = 0;
  int failures_without_progress_ = 0;  // failures in a row that were not at a later step than all before
  std::int64_t last_step_ = -1;
  std::int64_t furthest_step_ = -1;
};

}  // namespace chimera
