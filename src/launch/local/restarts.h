#pragma once
// Whether a job that failed is started again, and when: decisions on the steps at which it failed.

#include <chrono>
#include <cstdint>
#include <string>

namespace chimera {

/// What is counted, in words.
struct RestartWords {
  const char* again = "restarted";
  const char* flag = "--max-restarts";
  const char* first = "before its first step";  ///< where the step is 0
  const char* later = "in step";                ///< before the number of any other
};

/// Counts the starts of one job that have failed. A job that gets further each time is started again at once. One that
/// does not is made to wait longer and longer, and is given up once it has failed kSameStep times in a row in the same
/// step: what ends it there would do so again.
class Restarts {
 public:
  static constexpr int kSameStep = 3;
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};

  /// `most`: that are allowed.
  explicit Restarts(int most, RestartWords words = {}) : most_(most), words_(words) {}

  /// What to do now that a start has failed.
  struct Advice {
    bool again = false;
    std::chrono::seconds pause{0};  ///< before the next start
    std::string why_not = "";       ///< where it is given up, unless no restart was ever allowed
  };
  /// `step`: that the job was in, from 1; 0: before the first one it would have done.
  [[nodiscard]] Advice after_failure(std::int64_t step);
  /// Restarts that were advised so far.
  [[nodiscard]] int done() const { return done_; }

 private:
  int most_;
  RestartWords words_;
  int done_ = 0;
  int in_same_step_ = 0;             // failures in a row
  int without_gain_ = 0;             // failures since one came further than all before
  std::int64_t last_step_ = -1;      // of the last failure
  std::int64_t furthest_step_ = -1;  // of all failures
};

}  // namespace chimera
