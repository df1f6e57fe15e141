#include "train/loop/run_outputs.h"

#include "core/console.h"
#include "telemetry/run_history.h"

namespace chimera {

void RunOutputs::open(const Trainer& trainer) {
  speaks_ = trainer.rank() == RankId(0);
  if (!speaks_) return;
  const Job& job = trainer.job();
  const OutputOptions& output = options_.output;
  flops_ = step_flops(job, options_);
  peak_flops_ = job.peak_flops;
  if (!options_.exported.folder.empty() && !exported_to_) exported_to_.emplace(options_.exported.folder);
  if (!progress_) progress_.emplace(job.first_step, options_.updates.steps, output.log_every);
  // Without a change of the running ranks, a generation goes on with the open files.
  if (metrics_ || events_) return;
  // A step that is updated but not closed has no line yet. Trainer::run() closes it first, and so reports it.
  const std::int64_t closed = trainer.position().done() - (trainer.position().is_closed() ? 0 : 1);
  // Before the metrics are opened, which cuts the lines after `closed`: those steps will be reported again.
  if (output.observes()) lines_ = read_kept_lines(output.metrics, closed);
  if (!output.tensorboard.empty()) events_.emplace(output.tensorboard, closed + 1);
  if (!output.metrics.empty()) metrics_.emplace(output.metrics, closed);
}

void RunOutputs::close() {
  written_ = 0;
  metrics_.reset();
  events_.reset();
  progress_.reset();
  exported_to_.reset();
}

void RunOutputs::note_step(StepMetrics step) {
  const auto now = std::chrono::steady_clock::now();
  step.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  // The pace counts the wall time between steps, because validations and saves will also be in the time that is left.
  step.seconds_left = pace_.seconds_left(step.step, std::chrono::duration<double>(now - last_).count());
  last_ = now;
  // Ranks that do not write keep the pace all the same: after a loss, each may become the one that writes.
  if (!speaks_ || step.step <= written_) return;
  written_ = step.step;
  if (peak_flops_ > 0) step.utilization = flops_ / step.step_seconds / peak_flops_;
  if (step.utilization > 1 && !std::exchange(has_warned_, true))
    print_message("an MFU above 100 % is impossible: {}", kWrongPeak);
  if (metrics_) metrics_->write(step);
  if (options_.output.observes()) lines_ += to_json_line(step);
  if (events_) events_->write(step);
  progress_->show(step);
}

void RunOutputs::finish() {
  if (metrics_) metrics_->finish();
  if (events_) events_->finish();
}

}  // namespace chimera
