#pragma once

// Limits how long a search runs, by wall-clock time or by a number of timed schedules. Only the second limit makes a
// search reproducible.
//
// A search has one Budget. It passes a Phase, a fraction of what is left, to each of its algorithms (list scheduling,
// bounds, annealing, branch and bound), which may divide it into inner phases. An algorithm counts its work, in timed
// schedules or their equivalent, and ends when its phase is over(). Searchers that may run concurrently do not share a
// budget, because counting is not thread-safe. Each gets its own from Phase::for_one_of(), and its count is added to
// the phase afterwards.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace chimera {

class Budget {
 public:
  /// The budget is spent as soon as either limit is reached. It has no end if both are empty.
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

  /// Returns the budget of one of `sharers` searchers. Together they may use this budget up to the fraction `until`.
  /// The schedules left until then are divided by `sharers`. The time left is divided by `turns`: 1 if searchers run
  /// concurrently, else the number of searchers that have not finished.
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

/// A part of a budget or of an outer phase. It begins at construction, and is over when the fraction `share` of what
/// was left then is used. Holds a reference to the budget.
class Phase {
 public:
  explicit Phase(Budget& budget, double share = 1)
      : budget_(&budget), from_(budget.used()), until_(from_ + share * std::max(0.0, 1 - from_)) {}
  Phase(const Phase& outer, double share)
      : budget_(outer.budget_), from_(budget_->used()), until_(from_ + share * std::max(0.0, outer.until_ - from_)) {}

  void count(std::int64_t schedules = 1) { budget_->count(schedules); }
  /// Returns the budget of one of `sharers` searchers; see Budget::part().
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
