#pragma once
// When a save that failed is tried again.

#include <chrono>
#include <optional>

namespace chimera {

/// After a failed save the next try comes kFirstPause later, after each further one twice as late, up to kLongestPause.
class SaveRetries {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFirstPause{250};
  static constexpr std::chrono::milliseconds kLongestPause{60'000};

  void note_failure(Clock::time_point now);
  void note_success() { *this = {}; }
  /// Whether the last save failed, and its pause is over.
  [[nodiscard]] bool is_due(Clock::time_point now) const { return next_ && now >= *next_; }

 private:
  std::chrono::milliseconds pause_ = kFirstPause;
  std::optional<Clock::time_point> next_;
};

}  // namespace chimera
