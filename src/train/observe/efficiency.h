#pragma once
// How well a run uses its machine, and how long it still takes.

#include <cstdint>
#include <deque>

#include "telemetry/metrics.h"
#include "train/setup/job.h"

namespace chimera {

/// FLOPs of a step as the model's arithmetic has them (model_config/model_flops.h).
[[nodiscard]] double step_flops(const Job& job);

/// Seconds that the rest of a run will take, from what its last steps took.
class Pace {
 public:
  explicit Pace(std::int64_t steps) : steps_(steps) {}
  /// After that step (from 1), which took so long, with what followed the step before it: validation, comparisons. By
  /// the mean of the last twenty; the first one, which touches all memory anew, counts for want of others only.
  [[nodiscard]] double seconds_left(std::int64_t step, double seconds);

 private:
  std::int64_t steps_;
  std::deque<double> last_;  // seconds of the last steps
};

}  // namespace chimera
