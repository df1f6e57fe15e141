#pragma once
// How long the ops of each stage took: what `simulate` is fed to predict the step.

#include <array>
#include <cstdint>
#include <ctime>
#include <vector>

#include "core/ids.h"
#include "schedule/op.h"

namespace chimera {

/// How long something took: on the clock, and in time of the calling thread on a core. Where ranks share cores the
/// clock also counts the turns of the others.
struct Duration {
  double wall_seconds = 0;
  double cpu_seconds = 0;
};

/// Starts at construction; used by one thread. Asking for the time on a core is a system call.
class Stopwatch {
 public:
  explicit Stopwatch(bool counts_cpu = true)
      : counts_cpu_(counts_cpu), wall_(seconds(CLOCK_MONOTONIC)), cpu_(cpu_seconds()) {}
  /// Without counting it, the time on a core is 0.
  [[nodiscard]] Duration elapsed() const { return {seconds(CLOCK_MONOTONIC) - wall_, cpu_seconds() - cpu_}; }

 private:
  static double seconds(clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  [[nodiscard]] double cpu_seconds() const { return counts_cpu_ ? seconds(CLOCK_THREAD_CPUTIME_ID) : 0; }

  bool counts_cpu_;
  double wall_;
  double cpu_;
};

/// Sums of durations and counts for each (stage, kind of op), recomputations apart.
class OpTimes {
 public:
  explicit OpTimes(std::int64_t stages) : entries_(static_cast<std::size_t>(stages)) {}

  void add(const Op& op, const Duration& duration) {
    entries_[op.stage.index()][static_cast<std::size_t>(op.kind)].add(duration);
  }
  /// A forward that ran again before a backward.
  void add_recomputation(StageId stage, const Duration& duration) {
    entries_[stage.index()][kRecomputation].add(duration);
  }
  /// Mean of the ops so far; 0 where there was none.
  [[nodiscard]] Duration mean(StageId stage, OpKind kind) const {
    return entries_[stage.index()][static_cast<std::size_t>(kind)].mean();
  }
  /// How many there were.
  [[nodiscard]] double count(StageId stage, OpKind kind) const {
    return entries_[stage.index()][static_cast<std::size_t>(kind)].count;
  }
  [[nodiscard]] Duration mean_recomputation(StageId stage) const {
    return entries_[stage.index()][kRecomputation].mean();
  }
  [[nodiscard]] std::int64_t num_stages() const { return static_cast<std::int64_t>(entries_.size()); }

  /// The times as plain numbers, so that sums over workers can be formed; from_numbers reads them back.
  [[nodiscard]] std::vector<double> to_numbers() const {
    std::vector<double> numbers;
    for (const auto& stage : entries_) {
      for (const Entry& entry : stage)
        numbers.insert(numbers.end(), {entry.sum.wall_seconds, entry.sum.cpu_seconds, entry.count});
    }
    return numbers;
  }
  [[nodiscard]] static OpTimes from_numbers(const std::vector<double>& numbers) {
    OpTimes times(static_cast<std::int64_t>(numbers.size()) / (3 * kEntries));
    std::size_t next = 0;
    for (auto& stage : times.entries_) {
      for (Entry& entry : stage) {
        entry = {{numbers[next], numbers[next + 1]}, numbers[next + 2]};
        next += 3;
      }
    }
    return times;
  }

 private:
  static constexpr std::size_t kRecomputation = kOpKinds;  // after those of the kinds
  static constexpr int kEntries = kOpKinds + 1;
  struct Entry {
    Duration sum;
    double count = 0;
    void add(const Duration& duration) {
      sum.wall_seconds += duration.wall_seconds;
      sum.cpu_seconds += duration.cpu_seconds;
      count += 1;
    }
    [[nodiscard]] Duration mean() const {
      if (count == 0) return {};
      return {sum.wall_seconds / count, sum.cpu_seconds / count};
    }
  };
  std::vector<std::array<Entry, kEntries>> entries_;  // [stage][kind]
};

}  // namespace chimera
