#pragma once

// Times of the steps and optimizer updates on this rank. Trainer adds each of them, and calls summarize() at the end of
// the run to get the RunSummary of all ranks. The first step is slower, because memory and caches are used for the
// first time, so it does not count unless it is the only one.

#include <optional>
#include <vector>

#include "core/core_use.h"
#include "runtime/executor.h"
#include "telemetry/metrics.h"
#include "train/observe/measured_step.h"
#include "train/setup/rank_context.h"

namespace chimera {

class RunTimes {
 public:
  /// Adds the time of a step, after add_update() for its updates. If `is_warm_up`, omits the step and drops the updates
  /// added so far.
  void note_step(const StepMetrics& metrics, bool is_warm_up);
  void add_update(double seconds) { update_seconds_ += seconds; }
  /// Returns the maximum of StepMetrics::used_memory_bytes over all steps; 0 on the CPU.
  [[nodiscard]] double used_memory_bytes() const { return used_memory_bytes_; }

  /// Returns the summary of all ranks. The caller sets RunSummary::is_whole and the two memory fields. `own` has the
  /// times of this rank's ops and waits. All ranks must call it, because it sums over the ranks.
  [[nodiscard]] RunSummary summarize(const Executor& own, const RankContext& self) const;

 private:
  std::vector<double> step_seconds_;
  double update_seconds_ = 0;
  double used_memory_bytes_ = 0;
  std::optional<CoreUse> begin_ = core_use();  // Of the measured steps
};

}  // namespace chimera
