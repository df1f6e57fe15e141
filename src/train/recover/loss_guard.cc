#include "train/recover/loss_guard.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/console.h"
#include "train/recover/final_error.h"
#include "train/setup/job_checkpoints.h"

namespace chimera {

std::function<void(const std::string&, bool)> LossGuard::skip_hook(std::int64_t step) const {
  if (!leaves_out(step) && !self_.job.options.recovery.skips_non_finite(step)) return nullptr;
  // Called on all ranks; is_own is true on the one that found the value, so that only one prints.
  return [this, step](const std::string& what, bool is_own) {
    // Single bad mini-batches are skipped. A model that has diverged would skip all further steps in silence.
    if (skipped_in_row_ == kMaxSkippedInRow) {
      const std::string why =
          fmt::format("{}, and the {} steps before it were not finite either", what, kMaxSkippedInRow);
      if (is_own) throw Error(why + "; try a lower --learning-rate");
      // So that the launcher does not take this rank for the culprit.
      throw PeerLostError(why);
    }
    if (!is_own) return;
    print_message("rank {}: {}; step {} makes no update", self_.rank.value(), what, step);
  };
}

void LossGuard::note(StepMetrics& metrics, const LossWatch& watch, const std::function<void()>& before_end) {
  // A step that is left out on purpose tells nothing about the model.
  if (!leaves_out(metrics.step)) skipped_in_row_ = metrics.is_skipped ? skipped_in_row_ + 1 : 0;
  const double spike = self_.job.options.recovery.spike;
  if (spike == 0) return;
  metrics.loss_watch = watch;
  // The loss may be NaN, which would stay in the running mean for good.
  if (metrics.is_skipped) return;
  if (watch.deviations_above(metrics.loss) > spike) {
    before_end();
    end_for_spike(metrics, watch);
  }
  metrics.loss_watch.note(metrics.loss);
}

/// All ranks have the same loss; rank 0 stores the steps to leave out in the next attempt.
void LossGuard::end_for_spike(const StepMetrics& metrics, const LossWatch& watch) const {
  const TrainOptions& options = self_.job.options;
  // The mini-batches that cause a spike usually lie a few steps before it.
  const LeftOutSteps range{std::max<std::int64_t>(metrics.step - options.recovery.spike_skip + 1, 1), metrics.step};
  const bool is_first = self_.rank == RankId(0);
  if (is_first) {
    std::vector<LeftOutSteps> all = self_.job.left_out;
    all.push_back(range);
    write_left_out(options.checkpoint.folder, all);
  }
  fail_on_all_ranks(
      fmt::format("the loss, {:.4f}, is {:.1f} deviations of {:.4f} above the expected {:.4f} (--spike {:g}); "
                  "steps {} to {} make no update from now on",
                  metrics.loss, watch.deviations_above(metrics.loss), watch.deviation(), watch.expected(),
                  options.recovery.spike, range.first, range.second),
      is_first, self_.transport);
}

}  // namespace chimera
