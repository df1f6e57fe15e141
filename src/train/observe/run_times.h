#pragma once

// Times of the steps and optimizer updates on this rank. Trainer calls note_update() and note_step() in each step, and
// summarize() at the end of the run, which returns the RunSummary of all ranks. The first step is slower, because
// memory and caches are used for the first time. So it is the warm-up and does not count, unless it is the only step.

#include "core/core_use.h"
#include "runtime/executor.h"
#include "telemetry/metrics.h"
#include "train/observe/measured_step.h"
#include "train/setup/rank_context.h"
#include "transport/stream.h"

namespace chimera {

/// Times of one rank.
class RunTimes {
 public:
  /// Adds the time of a step. Call note_update() for its updates first. If `is_warm_up`, the step does not count, and
  /// all updates added so far are dropped.
  void note_step(const StepMetrics& metrics, bool is_warm_up);
  /// Adds an optimizer update from `begin` to now.
  void note_update(const TimeMark& begin, at::Device device) {
    updates_.note(begin, device, [this](double seconds) { update_seconds_ += seconds; });
  }
  /// On a device, call it when the host has waited for all updates so far.
  void read_updates() { updates_.read(); }
  /// Returns the maximum of StepMetrics::used_memory_bytes over all steps; 0 on the CPU.
  [[nodiscard]] double used_memory_bytes() const { return used_memory_bytes_; }

  /// Returns the summary of all ranks, except RunSummary::is_whole and the two memory fields, which the caller sets.
  /// `own` has the times of this rank's ops and waits. The load of other processes (RunSummary::others_share) is empty
  /// if ranks are on several hosts. Collective: all ranks must call it.
  [[nodiscard]] RunSummary summarize(const Executor& own, const RankContext& self) const;

 private:
  std::vector<double> step_seconds_;
  TimedWork updates_;
  double update_seconds_ = 0;
  double used_memory_bytes_ = 0;
  std::optional<CoreUse> begin_ = sample_core_use();  // Of the measured steps
};

}  // namespace chimera
