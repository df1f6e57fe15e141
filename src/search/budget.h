#pragma once
// Budget of a search: wall-clock time, or a reproducible count of timed schedules.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace chimera {

class Budget {
 public:
  /// Spent as soon as either limit is reached.
  Budget(std::optional<double> seconds, std::optional<std::int64_t> iterations)
      : seconds_(seconds), iterations_(iterations) {}

  void count(std::int64_t schedules = 1) { counted_ += schedules; }
  [[nodiscard]] std::int64_t counted() const { return counted_; }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Fraction used; 1 or more when spent.
  [[nodiscard]] double used() const {
    if (is_stopped_ != nullptr && *is_stopped_) return 1;
    double used = 0;
    if (iterations_)
      used = static_cast<double>(counted_) / static_cast<double>(std::max<std::int64_t>(1, *iterations_));
    if (seconds_ && *seconds_ > 0) used = std::max(used, seconds() / *seconds_);
    return seconds_ && *seconds_ <= 0 ? 1 : used;
  }

  /// Ends the budget as soon as `is_stopped` is true, too. Holds a reference.
  void stop_when(const std::atomic<bool>& is_stopped) { is_stopped_ = &is_stopped; }

  /// Returns a sharer's budget, out of the rest until `until` is used: the schedules divided by `sharers`, and the time
  /// by `turns` (1 if sharers run concurrently).
  [[nodiscard]] Budget part(double until, int sharers, int turns) const {
    std::optional<double> seconds;
    std::optional<std::int64_t> iterations;
    if (seconds_) seconds = std::max(0.0, until * *seconds_ - this->seconds()) / turns;
    if (iterations_) {
      const double left = until * static_cast<double>(*iterations_) - static_cast<double>(counted_);
      iterations = static_cast<std::int64_t>(std::max(0.0, left)) / sharers;
    }
    return {seconds, iterations};
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<double> seconds_;
  std::optional<std::int64_t> iterations_;
  std::int64_t counted_ = 0;
  const std::atomic<bool>* is_stopped_ = nullptr;
  Clock::time_point start_ = Clock::now();
};

/// Part of a budget: from now until `share` of the rest is used. Holds a reference.
class Phase {
 public:
  explicit Phase(Budget& budget, double share = 1)
      : budget_(&budget), from_(budget.used()), until_(from_ + share * std::max(0.0, 1 - from_)) {}
  Phase(const Phase& outer, double share)
      : budget_(outer.budget_), from_(budget_->used()), until_(from_ + share * std::max(0.0, outer.until_ - from_)) {}

  void count(std::int64_t schedules = 1) { budget_->count(schedules); }
  /// Returns a sharer's budget; see Budget::part().
  [[nodiscard]] Budget for_one_of(int sharers, int turns) const { return budget_->part(until_, sharers, turns); }
  [[nodiscard]] bool over() const { return budget_->used() >= until_; }
  /// Fraction elapsed, 0 to 1.
  [[nodiscard]] double passed() const {
    return until_ > from_ ? std::min(1.0, (budget_->used() - from_) / (until_ - from_)) : 1;
  }

 private:
  Budget* budget_;
  double from_;
  double until_;
};

}  // namespace chimera
