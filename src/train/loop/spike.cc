// What becomes of a step whose loss is a spike: that part of the trainer.

#include <fmt/format.h>

#include <algorithm>

#include "train/loop/trainer.h"
#include "train/recover/final_error.h"

namespace chimera {

/// Notes the loss of a step. A spike ends the run, before anything follows from the step: all ranks have the same loss.
/// Rank 0 notes which steps the next start is to leave out. What this run leaves out says nothing about its model.
void Trainer::watch_loss(StepMetrics& metrics) {
  metrics.loss_watch = last_metrics_.loss_watch;
  if (metrics.is_skipped) return;
  const LossWatch& watch = metrics.loss_watch;
  const double deviations = watch.deviations_above(metrics.loss);
  if (deviations <= job_.options.spike) return metrics.loss_watch.note(metrics.loss);
  const LeftOutSteps range{std::max<std::int64_t>(metrics.step - job_.options.spike_skip + 1, 1), metrics.step};
  if (rank_ == RankId(0)) {
    std::vector<LeftOutSteps> all = job_.left_out;
    all.push_back(range);
    write_left_out(job_.options.checkpoint.folder, all);
  }
  end_everywhere(
      fmt::format("the loss, {:.4f}, is {:.1f} deviations of {:.4f} above the expected {:.4f} (--spike {:g}); "
                  "steps {} to {} make no update from now on",
                  metrics.loss, deviations, watch.deviation(), watch.expected(), job_.options.spike, range.first,
                  range.last),
      rank_ == RankId(0), transport_);
}

}  // namespace chimera
