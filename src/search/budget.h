#pragma once
// How long a search may go on: by the clock, or by a count of the schedules that it times, which is the same anywhere.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace chimera {

class Budget {
 public:
  /// Ends as soon as one of both is spent.
  Budget(std::optional<double> seconds, std::optional<std::int64_t> iterations)
      : seconds_(seconds), iterations_(iterations) {}

  void count(std::int64_t schedules = 1) { counted_ += schedules; }
  [[nodiscard]] std::int64_t counted() const { return counted_; }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// The part that is used up: 1 and more when it is spent.
  [[nodiscard]] double used() const {
    if (is_stopped_ != nullptr && *is_stopped_) return 1;
    double used = 0;
    if (iterations_)
      used = static_cast<double>(counted_) / static_cast<double>(std::max<std::int64_t>(1, *iterations_));
    if (seconds_ && *seconds_ > 0) used = std::max(used, seconds() / *seconds_);
    return seconds_ && *seconds_ <= 0 ? 1 : used;
  }

  /// From now on it is spent as soon as that is true. Holds a reference.
  void stop_when(const std::atomic<bool>& is_stopped) { is_stopped_ = &is_stopped; }

  /// A budget of its own for one of `sharers` of what is left of this one until `until` is used: an equal part of the
  /// schedules, and of the time what is left for each of the next `turns`. Those that go on at the same time have one.
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

/// A stretch of a budget: from now until `share` of what is left is used. Holds a reference to the budget.
class Phase {
 public:
  explicit Phase(Budget& budget, double share = 1)
      : budget_(&budget), from_(budget.used()), until_(from_ + share * std::max(0.0, 1 - from_)) {}
  Phase(const Phase& outer, double share)
      : budget_(outer.budget_), from_(budget_->used()), until_(from_ + share * std::max(0.0, outer.until_ - from_)) {}

  void count(std::int64_t schedules = 1) { budget_->count(schedules); }
  /// What one of `sharers` may use of what is left, see Budget::part().
  [[nodiscard]] Budget for_one_of(int sharers, int turns) const { return budget_->part(until_, sharers, turns); }
  [[nodiscard]] bool over() const { return budget_->used() >= until_; }
  /// How much of it has passed, 0 to 1.
  [[nodiscard]] double passed() const {
    return until_ > from_ ? std::min(1.0, (budget_->used() - from_) / (until_ - from_)) : 1;
  }

 private:
  Budget* budget_;
  double from_;
  double until_;
};

}  // namespace chimera
