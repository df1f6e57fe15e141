#pragma once

// Decides whether and when a failed job may try again. The same policy serves restarts of a job, recoveries of lost
// ranks, and restarts on several hosts; only the words of its messages differ. It is pure arithmetic, without
// processes.

#include <chrono>
#include <cstdint>
#include <string>

namespace chimera {

struct RestartWords {
  const char* again = "restarted";
  const char* flag = "--max-restarts";
  const char* first = "before its first step";  ///< If the step is 0
  const char* later = "in step";                ///< Before other step numbers
};

/// Restart policy: restarts at once if each failure is at a later step; otherwise pauses longer and longer. Gives up
/// after kSameStep failures in a row in the same step.
class Restarts {
 public:
  static constexpr int kSameStep = 3;
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};

  explicit Restarts(int most, RestartWords words = {}) : most_(most), words_(words) {}

  struct Advice {
    bool again = false;
    std::chrono::seconds pause{0};
    std::string why_not = "";  ///< Empty if restarts were never allowed
  };
  /// `step` is the failed step, from 1; 0: before the first step.
  [[nodiscard]] Advice after_failure(std::int64_t step);
  [[nodiscard]] int done() const { return done_; }

 private:
  int most_;
  RestartWords words_;
  int done_ = 0;
  int in_same_step_ = 0;
  int without_gain_ = 0;  // failures since a new furthest step
  std::int64_t last_step_ = -1;
  std::int64_t furthest_step_ = -1;
};

}  // namespace chimera
