#pragma once

// Times of ops and instructions. OpTimes has totals by stage and kind of op, always on, for summaries and measured
// costs. Tracer keeps the boundaries between all instructions of the last steps, for traces, timelines and reports.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "schedule/dependencies.h"
#include "schedule/op.h"

namespace chimera {

/// Wall-clock time, and CPU time of the calling thread.
struct Duration {
  double wall_seconds = 0;
  double cpu_seconds = 0;
};

/// Starts at construction; for one thread. Reading the CPU time costs a system call.
class Stopwatch {
 public:
  explicit Stopwatch(bool counts_cpu = true)
      : counts_cpu_(counts_cpu), wall_(seconds(CLOCK_MONOTONIC)), cpu_(cpu_seconds()) {}
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

/// Total durations and counts by (stage, op kind), with recomputations apart. An op of a whole micro-batch counts as
/// one, with the time of all its `slices`.
class OpTimes {
 public:
  explicit OpTimes(std::int64_t stages, std::int64_t slices = 1)
      : entries_(static_cast<std::size_t>(stages)), share_(1 / static_cast<double>(slices)) {}

  void add(const Op& op, const Duration& duration) {
    entries_[op.stage.index()][static_cast<std::size_t>(op.kind)].add(duration, share_);
  }
  void add_recomputation(StageId stage, const Duration& duration) {
    entries_[stage.index()][kRecomputation].add(duration, share_);
  }
  void forget() { std::ranges::fill(entries_, std::array<Entry, kEntries>{}); }
  /// Returns the mean duration so far; 0 without ops.
  [[nodiscard]] Duration mean(StageId stage, OpKind kind) const {
    return entries_[stage.index()][static_cast<std::size_t>(kind)].mean();
  }
  [[nodiscard]] double count(StageId stage, OpKind kind) const {
    return entries_[stage.index()][static_cast<std::size_t>(kind)].count;
  }
  [[nodiscard]] Duration mean_recomputation(StageId stage) const {
    return entries_[stage.index()][kRecomputation].mean();
  }
  [[nodiscard]] std::int64_t num_stages() const { return static_cast<std::int64_t>(entries_.size()); }

  /// Returns numbers that can be added over workers; from_numbers() reads them back.
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
  static constexpr std::size_t kRecomputation = kOpKinds;  // row of recomputations, after the op kinds
  static constexpr int kEntries = kOpKinds + 1;
  struct Entry {
    Duration sum;
    double count = 0;
    void add(const Duration& duration, double ops) {
      sum.wall_seconds += duration.wall_seconds;
      sum.cpu_seconds += duration.cpu_seconds;
      count += ops;
    }
    [[nodiscard]] Duration mean() const {
      if (count == 0) return {};
      return {sum.wall_seconds / count, sum.cpu_seconds / count};
    }
  };
  std::vector<std::array<Entry, kEntries>> entries_;  // [stage][kind]
  double share_;                                      // of an op that a slice counts
};

/// Bytes in use now, and their peak since the previous sample.
struct MemorySample {
  std::int64_t live = 0;
  std::int64_t peak = 0;
};

/// One step of a worker, in monotonic_seconds() of its own clock.
struct StepTrace {
  std::int64_t step = 0;                  // step of the run, from 0
  std::vector<double> boundaries;         // instruction i ran from [i] to [i + 1]; the first of a pair until [i + 2]
  std::vector<double> summed_until;       // [parameter group]: when the sum was complete; 0 if not reported
  std::vector<MemorySample> memory = {};  // [boundary], if sampled
};

/// Instruction times of a worker's last steps: at most `kMostSteps`, fewer if they exceed `kMostInstructions`, at least
/// one.
class Tracer {
 public:
  static constexpr std::size_t kMostSteps = 8;
  static constexpr std::size_t kMostInstructions = 1 << 17;  // 1 MiB of times

  /// Calls `sample_memory`, if set, at every boundary.
  Tracer(std::size_t instructions, std::size_t groups, std::function<MemorySample()> sample_memory = {})
      : instructions_(instructions),
        groups_(groups),
        most_steps_(std::clamp<std::size_t>(kMostInstructions / std::max<std::size_t>(instructions, 1), 1, kMostSteps)),
        sample_memory_(std::move(sample_memory)) {}

  /// Starts a step; later boundaries belong to it.
  void begin_step(std::int64_t step) {
    if (steps_.size() == most_steps_) steps_.pop_front();
    StepTrace& trace = *steps_.emplace_back(std::make_shared<StepTrace>());
    trace.step = step;
    trace.boundaries.reserve(instructions_ + 1);
    trace.summed_until.assign(groups_, 0);
  }
  /// Records the boundary between two instructions.
  void mark() {
    if (sample_memory_) steps_.back()->memory.push_back(sample_memory_());
    steps_.back()->boundaries.push_back(monotonic_seconds());
  }
  /// Returns a function to call, on any thread, when the group's sum is complete; may outlive the tracer.
  [[nodiscard]] std::function<void()> summed(ParameterGroupId group) {
    return [trace = steps_.back(), group] { trace->summed_until[group.index()] = monotonic_seconds(); };
  }

  [[nodiscard]] const std::deque<std::shared_ptr<StepTrace>>& steps() const { return steps_; }

 private:
  std::size_t instructions_;
  std::size_t groups_;
  std::size_t most_steps_;
  std::function<MemorySample()> sample_memory_;
  std::deque<std::shared_ptr<StepTrace>> steps_;  // oldest first
};

}  // namespace chimera
