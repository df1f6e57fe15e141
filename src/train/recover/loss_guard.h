#pragma once

// Checks the loss of each step for two kinds of failure. First, a loss or gradient may be infinite or NaN. If
// --non-finite allows it, the step then makes no update; after kMaxSkippedInRow such steps in a row, the run ends.
// Second, the loss may have a spike: it is far above the expected loss (--spike). The attempt of the job then ends on
// all ranks, and the next attempt leaves out the updates of the mini-batches up to the spike
// (train/setup/job_checkpoints.h). Trainer calls note() after each step.

#include <functional>

#include "telemetry/metrics.h"
#include "train/setup/rank_context.h"

namespace chimera {

inline constexpr std::int64_t kMaxSkippedInRow = 10;

/// The checks of one rank. Steps count from 1. Borrows the context.
class LossGuard {
 public:
  explicit LossGuard(const RankContext& self) : self_(self) {}

  /// Returns whether an earlier attempt has excluded the update of `step`.
  [[nodiscard]] bool leaves_out(std::int64_t step) const { return chimera::leaves_out(self_.job.left_out, step); }
  /// Returns the function that the executor calls if the loss or a gradient of `step` is not finite
  /// (UpdateHooks::skip_non_finite in runtime/step_hooks.h). It prints a message, and throws after kMaxSkippedInRow
  /// such steps. Empty if such a value must end the run.
  [[nodiscard]] std::function<void(const std::string& what, bool is_own)> skip_hook(std::int64_t step) const;
  /// Counts skipped steps. With --spike, also compares the loss with the loss that `watch` expects, which has
  /// statistics of earlier losses (telemetry/metrics.h), and sets metrics.loss_watch to the statistics with this step.
  /// If the loss is a spike, calls `before_end` on all ranks; it must complete the current save, because the next
  /// attempt resumes from the newest checkpoint. Then throws the errors of fail_on_all_ranks().
  void note(StepMetrics& metrics, const LossWatch& watch, const std::function<void()>& before_end);

  /// Returns how many of the last steps in a row made no update.
  [[nodiscard]] std::int64_t skipped_in_row() const { return skipped_in_row_; }
  /// Sets this number on the replacement of a lost rank.
  void set_skipped_in_row(std::int64_t steps) { skipped_in_row_ = steps; }

 private:
  [[noreturn]] void end_for_spike(const StepMetrics& metrics, const LossWatch& watch) const;

  const RankContext& self_;
  std::int64_t skipped_in_row_ = 0;
};

}  // namespace chimera
