#pragma once

// The lines about speed at the end of a run. They compare three times of a step: planned, simulated and measured.
// - Planned: predicted before the run by the plan or machine profile that it was started with, if any.
// - Simulated: simulate() with the mean op times that this run measured. The difference to the measured time shows
//   time lost to messages and all-reduces, but not slow ops; only the difference to the planned time shows slow ops.
// - Measured: the median of the run's steps.
//
// The lines also report the load of other programs on the same cores, because it slows down everything.

#include "telemetry/speed_report.h"
#include "train/observe/measured_step.h"
#include "train/setup/job.h"

namespace chimera {

/// Prediction of a step by simulate(), with the mean times of the ops that this run measured.
struct StepForecast {
  double step_seconds = 0;  ///< Includes the optimizer step
  double period = 0;        ///< Makespan in seconds; for asynchronous schedules, the time between ends of two steps
  double bubble_ratio = 0;
  double turns =
      0;  ///< If ranks share cores: seconds of work of all ranks over the cores, a lower bound of `period`; else 0
};
/// Returns the prediction. `cores` is the number of cores that this process may use.
[[nodiscard]] StepForecast forecast(const JobShape& job, const RunSummary& run, int cores);

/// Returns planned, simulated and measured step time, the parts of the difference, the load of other processes, and the
/// memory in use if the run uses GPUs. The difference is to the plan if there is one, else to the simulation:
///
///   ops            simulated minus planned: ops took longer than the plan says
///   messages       measured time in ops and in waits for messages, minus the simulated step
///   sums           waits for all-reduces of gradients
///   slowest rank   waits for the slowest rank at the end of the step
///   rest           everything else, such as starts of messages and reading of data
///
/// If the difference is more than a tenth, more lines have slow_causes() (telemetry/speed_report.h). `cores` is the
/// number of cores that this process may use.
[[nodiscard]] std::string speed_summary(const JobShape& job, const TrainOptions& options, const RunSummary& run,
                                        int cores);

/// Returns the numbers of speed_summary() for `chimera diagnose`.
[[nodiscard]] SpeedAnalysis analyze_speed(const JobShape& job, const PlannedTimes& planned, const RunSummary& run,
                                          int cores);

}  // namespace chimera
