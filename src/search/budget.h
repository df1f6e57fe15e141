#pragma once

// Limits how long a search runs: by wall-clock time, or by a number of timed schedules (schedules whose makespan the
// search has computed). Only the second limit makes a search reproducible.
//
// A search has one Budget. It gives a Phase, a fraction of the budget that is left, to each of its algorithms (list
// scheduling, bounds, annealing, branch and bound), which may divide the phase into inner phases. An algorithm counts
// its work, in timed schedules or work that takes as long, and ends when its phase is is_over(). Counting is not
// thread-safe. Therefore each of several concurrent searchers gets a budget of its own from Phase::for_one_of(), and
// its count is added to the phase afterwards.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace chimera {

/// The limits of a search, and how much of them is used.
class Budget {
 public:
  /// The budget is spent as soon as `seconds` have passed or `iterations` schedules were counted. It has no end if both
  /// are empty.
  Budget(std::optional<double> seconds, std::optional<std::int64_t> iterations)
      : seconds_(seconds), iterations_(iterations) {}

  /// Counts timed schedules.
  void count(std::int64_t schedules = 1) { counted_ += schedules; }
  [[nodiscard]] std::int64_t counted() const { return counted_; }
  /// Returns the seconds since construction.
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Returns the fraction of the budget that is used; 1 or more when it is spent.
  [[nodiscard]] double used() const {
    if (is_stopped_ != nullptr && *is_stopped_) return 1;
    double used = 0;
    if (iterations_)
      used = static_cast<double>(counted_) / static_cast<double>(std::max<std::int64_t>(1, *iterations_));
    if (seconds_ && *seconds_ > 0) used = std::max(used, seconds() / *seconds_);
    return seconds_ && *seconds_ <= 0 ? 1 : used;
  }

  /// Makes the budget spent also when `is_stopped` becomes true, which any thread may do. Holds a reference to it.
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

/// A part of a budget or of an outer phase. It begins at construction, and gets the fraction `share` of the budget or
/// phase that is left at this time. Holds a reference to the budget.
class Phase {
 public:
  explicit Phase(Budget& budget, double share = 1)
      : budget_(&budget), from_(budget.used()), until_(from_ + share * std::max(0.0, 1 - from_)) {}
  Phase(const Phase& outer, double share)
      : budget_(outer.budget_), from_(budget_->used()), until_(from_ + share * std::max(0.0, outer.until_ - from_)) {}

  void count(std::int64_t schedules = 1) { budget_->count(schedules); }
  /// Returns the budget of one of `sharers` searchers; see Budget::part().
  [[nodiscard]] Budget for_one_of(int sharers, int turns) const { return budget_->part(until_, sharers, turns); }
  [[nodiscard]] bool is_over() const { return budget_->used() >= until_; }
  /// Returns the fraction of the phase that has passed, 0 to 1.
  [[nodiscard]] double elapsed_fraction() const {
    return until_ > from_ ? std::min(1.0, (budget_->used() - from_) / (until_ - from_)) : 1;
  }

 private:
  Budget* budget_;
  double from_;
  double until_;
};

}  // namespace chimera
