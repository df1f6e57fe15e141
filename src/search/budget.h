#pragma once
// How long a search may go on: by the clock, or by a count of the schedules that it times, which is the same anywhere.

#include <algorithm>
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
    double used = 0;
    if (iterations_)
      used = static_cast<double>(counted_) / static_cast<double>(std::max<std::int64_t>(1, *iterations_));
    if (seconds_ && *seconds_ > 0) used = std::max(used, seconds() / *seconds_);
    return seconds_ && *seconds_ <= 0 ? 1 : used;
  }

  /// A budget of its own for one of `threads` that go on at the same time until `until` of this one is used.
  [[nodiscard]] Budget part(double until, int threads) const {
    std::optional<double> seconds;
    std::optional<std::int64_t> iterations;
    if (seconds_) seconds = std::max(0.0, until * *seconds_ - this->seconds());
    if (iterations_) {
      const double left = until * static_cast<double>(*iterations_) - static_cast<double>(counted_);
      iterations = static_cast<std::int64_t>(std::max(0.0, left)) / threads;
    }
    return {seconds, iterations};
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<double> seconds_;
  std::optional<std::int64_t> iterations_;
  std::int64_t counted_ = 0;
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
  /// What one of `threads` may use of what is left.
  [[nodiscard]] Budget for_one_of(int threads) const { return budget_->part(until_, threads); }
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
