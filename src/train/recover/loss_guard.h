#pragma once

// Watches the loss of each step for two kinds of failure. A loss or gradient that is not finite skips the update if
// --non-finite allows it, and ends the run after kMostSkippedInRow skipped steps in a row. A spike (--spike), a loss
// far above the expected one, ends the attempt on all ranks; the next attempt leaves out the updates of the
// mini-batches up to the spike (left_out_steps.h).

#include <cstdint>
#include <functional>
#include <string>

#include "telemetry/metrics.h"
#include "train/setup/rank_context.h"

namespace chimera {

inline constexpr std::int64_t kMostSkippedInRow = 10;

/// Steps count from 1. Borrows the context.
class LossGuard {
 public:
  explicit LossGuard(const RankContext& self) : self_(self) {}

  /// Returns whether an earlier attempt has excluded the update of `step`.
  [[nodiscard]] bool leaves_out(std::int64_t step) const { return chimera::leaves_out(self_.job.left_out, step); }
  /// Returns StepHooks::skip_non_finite of `step`; empty if a value that is not finite ends the run.
  [[nodiscard]] std::function<void(const std::string& what, bool is_own)> skip_hook(std::int64_t step) const;
  /// Counts skipped steps. Compares the loss with the expectation of `watch`, the state before the step, and sets
  /// StepMetrics::loss_watch. Throws the errors of end_everywhere() for a spike.
  void note(StepMetrics& metrics, const LossWatch& watch);

  [[nodiscard]] std::int64_t skipped_in_row() const { return skipped_in_row_; }
  void set_skipped_in_row(std::int64_t steps) { skipped_in_row_ = steps; }

 private:
  [[noreturn]] void end_for_spike(const StepMetrics& metrics, const LossWatch& watch) const;

  const RankContext& self_;
  std::int64_t skipped_in_row_ = 0;
};

}  // namespace chimera
