#pragma once
// What really ran on a worker: when each instruction of the last steps began and ended.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "schedule/parameter_groups.h"

namespace chimera {

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
