#pragma once

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

// How long the ops of each stage took: what `simulate` is fed to predict the step.

// What really ran on a worker: when each instruction of the last steps began and ended.

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

/// Bytes that are in use at a moment, and at most since the moment before.
struct MemorySample {
  std::int64_t live = 0;
  std::int64_t peak = 0;
};

/// One step of a worker, in monotonic_seconds() of its own clock.
struct StepTrace {
  std::int64_t step = 0;                  // from 0
  std::vector<double> boundaries;         // instruction i ran from boundaries[i] to boundaries[i + 1];
                                          // the first of a pair until the end of the second
  std::vector<double> summed_until;       // [parameter group]: when the transport had the sum, where it says; else 0
  std::vector<MemorySample> memory = {};  // [boundary], where memory is looked at
};

/// Keeps the last steps of a worker: one clock reading an instruction. Bounded: at most `kMostSteps` steps, and fewer
/// where together they would have more than `kMostInstructions`, but at least one.
class Tracer {
 public:
  static constexpr std::size_t kMostSteps = 8;
  static constexpr std::size_t kMostInstructions = 1 << 17;  // 1 MiB of times

  /// `look_at_memory` is called at every boundary, where it is given.
  Tracer(std::size_t instructions, std::size_t groups, std::function<MemorySample()> look_at_memory = {})
      : instructions_(instructions),
        groups_(groups),
        most_steps_(std::clamp<std::size_t>(kMostInstructions / std::max<std::size_t>(instructions, 1), 1, kMostSteps)),
        look_at_memory_(std::move(look_at_memory)) {}

  /// Begins a step, to which the boundaries that follow belong.
  void begin_step(std::int64_t step) {
    if (steps_.size() == most_steps_) steps_.pop_front();
    StepTrace& trace = *steps_.emplace_back(std::make_shared<StepTrace>());
    trace.step = step;
    trace.boundaries.reserve(instructions_ + 1);
    trace.summed_until.assign(groups_, 0);
  }
  /// Notes the time at which the next instruction begins, or the last one has ended.
  void mark() {
    if (look_at_memory_) steps_.back()->memory.push_back(look_at_memory_());
    steps_.back()->boundaries.push_back(monotonic_seconds());
  }
  /// A function to be called, on any thread, when the gradients of a group are summed; it outlives the tracer.
  [[nodiscard]] std::function<void()> summed(ParameterGroupId group) {
    return [trace = steps_.back(), group] { trace->summed_until[group.index()] = monotonic_seconds(); };
  }

  [[nodiscard]] const std::deque<std::shared_ptr<StepTrace>>& steps() const { return steps_; }

 private:
  std::size_t instructions_;
  std::size_t groups_;
  std::size_t most_steps_;
  std::function<MemorySample()> look_at_memory_;
  std::deque<std::shared_ptr<StepTrace>> steps_;  // oldest first
};

}  // namespace chimera
