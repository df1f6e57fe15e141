#pragma once

// Times of the steps and updates that this rank has run, for the summary at the end of a run. The first step is slower,
// because memory and caches are used for the first time, so it does not count unless it is the only one.

#include <vector>

#include "runtime/tracer.h"
#include "telemetry/metrics.h"
#include "train/observe/measured_step.h"
#include "train/setup/rank_context.h"

namespace chimera {

class RunTimes {
 public:
  /// Adds the time of a step. `is_warm_up`: forgets the times of its updates instead.
  void note_step(const StepMetrics& metrics, bool is_warm_up);
  void add_update(double seconds) { update_seconds_ += seconds; }
  [[nodiscard]] double used_memory_bytes() const { return used_memory_bytes_; }

  /// Returns the summary of all ranks, but for RunSummary::is_whole and the memory. `own` are the times of this rank's
  /// ops. All ranks call it.
  [[nodiscard]] RunSummary summarize(const OpTimes& own, const RankContext& self) const;

 private:
  std::vector<double> step_seconds_;
  double update_seconds_ = 0;
  double used_memory_bytes_ = 0;  // Maximum
};

}  // namespace chimera
