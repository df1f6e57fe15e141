#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "telemetry/metrics.h"
#include "train/loop/trainer.h"
#include "train/setup/job.h"

// How well a run uses its machine, and how long it still takes.

// What a run shows: the schedule, a progress line, and predicted beside measured at the end.

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

/// Seconds as people say them: `45 s`, `3 min 20 s`, `2 h 5 min`.
[[nodiscard]] std::string in_words(std::chrono::duration<double> time);

/// A rate as people say it: `3499 tok/s`, `12.3 ktok/s`.
[[nodiscard]] std::string tokens_per_second(double rate);

/// `step 20/100  loss 3.2145  grad 0.92  12.3 ktok/s  MFU 41.2 %  1.20 GiB  0.412 s/step  ETA 33 s`, in at most 100
/// columns: where all does not fit, what can be worked out from the rest goes first.
[[nodiscard]] std::string progress_line(const StepMetrics& metrics, std::int64_t steps);

/// `  sample: the king went to`: what the model says, in one line for a terminal, so with blanks for control
/// characters.
[[nodiscard]] std::string sample_line(const std::string& sample);

/// Shows steps on standard error: one line that is rewritten on a terminal, else about twenty plain lines in all and
/// one for each validation; and what the model says, where it is asked.
class Progress {
 public:
  explicit Progress(std::int64_t steps);
  void show(const StepMetrics& metrics);

 private:
  std::int64_t steps_;
  bool on_terminal_;
};

/// What will run: model, schedule, batch and data in a few lines, and the schedule's picture where it fits a page.
[[nodiscard]] std::string describe(const Job& job);

/// What `simulate` says of a step, fed with the measured mean of every op. Times in seconds.
struct StepForecast {
  double step_seconds = 0;  ///< the optimizer step included
  double period = 0;        ///< of the ops: the makespan, or what one step takes of several without a flush
  double bubble_ratio = 0;
  double turns = 0;  ///< the least that ranks take which share cores and take turns; 0 where each has a core
};
/// `cores` are those that this machine lends.
[[nodiscard]] StepForecast forecast(const Job& job, const RunSummary& run, int cores);

/// Measured step time beside the forecast.
[[nodiscard]] std::string summary(const Job& job, const RunSummary& run, int cores);

}  // namespace chimera
