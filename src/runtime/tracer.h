#pragma once

// Measures times of a worker. The executor always fills OpTimes (total time by stage and kind of op) and WaitTimes
// (total time in which the worker was blocked), for summaries and measured costs. If --trace, --timeline, --op-times or
// --report is given, it also fills a Tracer: the times between all instructions of the last steps.

#include <algorithm>
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

/// Measures the time since its construction. Use it in one thread. Reading the CPU time costs a system call, which
/// `counts_cpu` = false omits.
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

/// Total durations and numbers of ops by stage and kind of op; recomputations are separate. If a micro-batch runs in
/// `slices`, their ops together count as one op. All is stored in one vector of numbers, so that an all-reduce can add
/// those of several workers.
class OpTimes {
 public:
  explicit OpTimes(std::int64_t stages, std::int64_t slices = 1)
      : numbers_(static_cast<std::size_t>(stages) * kNumbersOfStage, 0), share_(1 / static_cast<double>(slices)) {}
  /// Reads numbers() or their sum over several workers.
  explicit OpTimes(std::vector<double> numbers) : numbers_(std::move(numbers)) {}

  void add(const Op& op, const Duration& duration) { add(op.stage, static_cast<std::size_t>(op.kind), duration); }
  void add_recomputation(StageId stage, const Duration& duration) { add(stage, kRecomputation, duration); }
  void forget() { std::ranges::fill(numbers_, 0); }
  /// Returns the mean duration so far; 0 without ops.
  [[nodiscard]] Duration mean(StageId stage, OpKind kind) const { return mean(stage, static_cast<std::size_t>(kind)); }
  [[nodiscard]] Duration mean_recomputation(StageId stage) const { return mean(stage, kRecomputation); }
  [[nodiscard]] double count(StageId stage, OpKind kind) const {
    return numbers_[place(stage, static_cast<std::size_t>(kind)) + 2];
  }
  [[nodiscard]] std::int64_t num_stages() const { return static_cast<std::int64_t>(numbers_.size() / kNumbersOfStage); }
  [[nodiscard]] const std::vector<double>& numbers() const { return numbers_; }
  /// Returns the sum of all durations by wall clock.
  [[nodiscard]] double wall_seconds() const {
    double sum = 0;
    for (std::size_t i = 0; i < numbers_.size(); i += 3) sum += numbers_[i];
    return sum;
  }

 private:
  static constexpr std::size_t kRecomputation = kOpKinds;  // after the op kinds
  static constexpr std::size_t kNumbersOfStage = 3 * (kOpKinds + 1);

  [[nodiscard]] static std::size_t place(StageId stage, std::size_t kind) {
    return stage.index() * kNumbersOfStage + 3 * kind;
  }
  void add(StageId stage, std::size_t kind, const Duration& duration) {
    double* sums = &numbers_[place(stage, kind)];
    sums[0] += duration.wall_seconds;
    sums[1] += duration.cpu_seconds;
    sums[2] += share_;
  }
  [[nodiscard]] Duration mean(StageId stage, std::size_t kind) const {
    const double* sums = &numbers_[place(stage, kind)];
    if (sums[2] == 0) return {};
    return {sums[0] / sums[2], sums[1] / sums[2]};
  }

  std::vector<double> numbers_;  // [stage][kind]: wall seconds, CPU seconds, ops
  double share_ = 1;             // of an op that a slice counts
};

/// Seconds in which a worker was blocked, in total over training steps.
struct WaitTimes {
  double messages = 0;  ///< Waiting for messages of other stages, and for the completion of its own sends
  double sums = 0;      ///< Waiting for all-reduces of gradients
  double ranks = 0;     ///< Waiting for the slowest rank, at the all-reduce of losses and norms that ends a step
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
  std::vector<double> all_reduce_ends;    // [parameter group]: when the sum was complete; 0 if not reported
  std::vector<MemorySample> memory = {};  // [boundary], if sampled
};

/// Instruction times of a worker's last steps: at most `kMaxSteps`, fewer if they exceed `kMaxInstructions`, at least
/// one.
class Tracer {
 public:
  static constexpr std::size_t kMaxSteps = 8;
  static constexpr std::size_t kMaxInstructions = 1 << 17;  // 1 MiB of times

  /// Calls `sample_memory`, if set, at every boundary.
  Tracer(std::size_t instructions, std::size_t groups, std::function<MemorySample()> sample_memory = {})
      : instructions_(instructions),
        groups_(groups),
        most_steps_(std::clamp<std::size_t>(kMaxInstructions / std::max<std::size_t>(instructions, 1), 1, kMaxSteps)),
        sample_memory_(std::move(sample_memory)) {}

  /// Starts a step; later boundaries belong to it.
  void begin_step(std::int64_t step) {
    if (steps_.size() == most_steps_) steps_.pop_front();
    StepTrace& trace = *steps_.emplace_back(std::make_shared<StepTrace>());
    trace.step = step;
    trace.boundaries.reserve(instructions_ + 1);
    trace.all_reduce_ends.assign(groups_, 0);
  }
  /// Records the boundary between two instructions.
  void mark() {
    if (sample_memory_) steps_.back()->memory.push_back(sample_memory_());
    steps_.back()->boundaries.push_back(monotonic_seconds());
  }
  /// Returns a function to call, on any thread, when the group's sum is complete; may outlive the tracer.
  [[nodiscard]] std::function<void()> all_reduce_callback(ParameterGroupId group) {
    return [trace = steps_.back(), group] { trace->all_reduce_ends[group.index()] = monotonic_seconds(); };
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
