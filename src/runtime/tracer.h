#pragma once

// Measures times of a worker. The executor always fills OpTimes (total time by stage and kind of op) and WaitTimes
// (total time in which the worker was blocked), for summaries and measured costs. If --trace, --timeline, --op-times or
// --report is given, it also fills a Tracer: the times between all instructions of the last steps. On a GPU, all of
// them are times of its stream, not of the host that launches the work. Other measurements of a worker are TransitTimes
// (messages) and MemorySample.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "schedule/dependencies.h"
#include "schedule/op.h"
#include "schedule/rank_layout.h"
#include "transport/stream.h"

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
/// `slices` of its tokens, their ops together count as one op. All is stored in one vector of numbers, so that an
/// all-reduce can add the vectors of several workers.
class OpTimes {
 public:
  explicit OpTimes(std::int64_t stages, std::int64_t slices = 1)
      : numbers_(static_cast<std::size_t>(stages) * kNumbersOfStage, 0), share_(1 / static_cast<double>(slices)) {}
  /// Reads numbers() or their sum over several workers.
  explicit OpTimes(std::vector<double> numbers) : numbers_(std::move(numbers)) {}

  static constexpr std::size_t kRecomputation = kOpKinds;  ///< after the op kinds

  void add(const Op& op, const Duration& duration) { add(op.stage, static_cast<std::size_t>(op.kind), duration); }
  /// `kind` is an OpKind, or kRecomputation.
  void add(StageId stage, std::size_t kind, const Duration& duration) {
    double* sums = &numbers_[place(stage, kind)];
    sums[0] += duration.wall_seconds;
    sums[1] += duration.cpu_seconds;
    sums[2] += share_;
  }
  void forget() { std::ranges::fill(numbers_, 0); }
  /// Returns the mean duration so far; 0 without ops.
  [[nodiscard]] Duration mean(StageId stage, OpKind kind) const { return mean(stage, static_cast<std::size_t>(kind)); }
  [[nodiscard]] Duration mean_recomputation(StageId stage) const { return mean(stage, kRecomputation); }
  /// Returns the number of ops so far. With slices, an op of one slice counts as the fraction 1 / slices.
  [[nodiscard]] double count(StageId stage, OpKind kind) const {
    return numbers_[place(stage, static_cast<std::size_t>(kind)) + 2];
  }
  [[nodiscard]] std::int64_t num_stages() const { return static_cast<std::int64_t>(numbers_.size() / kNumbersOfStage); }
  /// Returns all sums as one vector, so that the vectors of several workers can be added element by element.
  [[nodiscard]] const std::vector<double>& numbers() const { return numbers_; }
  /// Returns the sum of all durations, by wall clock or in CPU time; the latter is 0 on a GPU.
  [[nodiscard]] double total(double Duration::*clock = &Duration::wall_seconds) const {
    double sum = 0;
    for (std::size_t i = clock == &Duration::wall_seconds ? 0 : 1; i < numbers_.size(); i += 3) sum += numbers_[i];
    return sum;
  }

 private:
  static constexpr std::size_t kNumbersOfStage = 3 * (kOpKinds + 1);

  [[nodiscard]] static std::size_t place(StageId stage, std::size_t kind) {
    return stage.index() * kNumbersOfStage + 3 * kind;
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

/// Shortest seconds from the send of a message to its arrival, over the messages from one rank. The send is read from
/// the sender's clock and the arrival from the receiver's, so the difference of the two clocks is included. Empty: no
/// message.
struct TransitTime {
  std::optional<double> waited;  ///< Over messages for which the receiver waited: the time that the link takes
  std::optional<double> bound;   ///< Over all messages: an upper bound of the time that the link takes
};
/// By sender.
using TransitTimes = std::map<RankId, TransitTime>;

/// Bytes in use now (`live`), and their peak since the previous sample.
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
  std::vector<TimeMark> marks = {};       // [boundary] on a device, before it is read
  // Marks the end of a host wait and has the host's time then, to convert times of the device.
  std::optional<std::pair<TimeMark, double>> wait_end = std::nullopt;
};

/// Instruction times of a worker's last steps: at most `kMaxSteps`, fewer if they exceed `kMaxInstructions`, at least
/// one. For the worker's own thread, except for the function that all_reduce_callback() returns.
class Tracer {
 public:
  static constexpr std::size_t kMaxSteps = 8;
  static constexpr std::size_t kMaxInstructions = 1 << 17;  // 1 MiB of times

  /// `instructions` is the number of instructions of a step, and `groups` the number of parameter groups. Calls
  /// `sample_memory`, if set, at every boundary.
  Tracer(std::size_t instructions, std::size_t groups, std::function<MemorySample()> sample_memory = {},
         at::Device device = at::kCPU)
      : device_(device),
        instructions_(instructions),
        groups_(groups),
        most_steps_(std::clamp<std::size_t>(kMaxInstructions / std::max<std::size_t>(instructions, 1), 1, kMaxSteps)),
        sample_memory_(std::move(sample_memory)) {}

  /// Starts a step (from 0); later boundaries belong to it. Drops the oldest step if there are too many.
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
    if (device_.is_cpu())
      steps_.back()->boundaries.push_back(monotonic_seconds());
    else
      steps_.back()->marks.emplace_back(device_);
  }
  /// Call it when the host has waited for the device, once per step.
  void note_wait() {
    if (!device_.is_cpu()) steps_.back()->wait_end.emplace(TimeMark(device_), monotonic_seconds());
  }
  /// Returns a function to call, on any thread, when the group's sum is complete; may outlive the tracer.
  [[nodiscard]] std::function<void()> all_reduce_callback(ParameterGroupId group) {
    return [trace = steps_.back(), group] { trace->all_reduce_ends[group.index()] = monotonic_seconds(); };
  }

  /// Returns the recorded steps, oldest first. Waits for the device.
  [[nodiscard]] const std::deque<std::shared_ptr<StepTrace>>& steps() const {
    await_device(device_);
    for (const auto& step : steps_) {
      if (!step->wait_end) continue;
      const auto& [end, seconds] = *step->wait_end;
      for (const TimeMark& mark : step->marks)  // From the first mark, because CUDA need not measure backward
        step->boundaries.push_back(seconds - end.seconds_since(step->marks.front()) +
                                   mark.seconds_since(step->marks.front()));
      step->marks.clear();
    }
    return steps_;
  }

 private:
  at::Device device_;
  std::size_t instructions_;
  std::size_t groups_;
  std::size_t most_steps_;
  std::function<MemorySample()> sample_memory_;
  std::deque<std::shared_ptr<StepTrace>> steps_;  // oldest first
};

}  // namespace chimera
