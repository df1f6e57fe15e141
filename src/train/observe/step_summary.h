#pragma once

// The last lines of a run about its speed: the time of a step as planned, as simulated and as measured, and what
// explains the difference. The plan's time is the one of the plan or machine profile that the run was started with. The
// simulation uses the op times of the run itself, so it shows losses of the schedule, messages and sums, but never slow
// ops; only the plan shows these. Other programs on the same cores slow down everything, so their load is reported
// beside it.

#include <string>

#include "telemetry/speed_report.h"
#include "train/observe/measured_step.h"
#include "train/setup/job.h"

namespace chimera {

/// Prediction of a step by simulate(), with the mean times of the ops that this run measured.
struct StepForecast {
  double step_seconds = 0;  ///< Includes the optimizer step
  double period = 0;        ///< Makespan of the ops; asynchronous: period of a step
  double bubble_ratio = 0;
  double turns = 0;  ///< Work divided by cores, a lower bound if ranks share cores; 0 if each rank has a core
};
/// `cores` is the number of cores available to this process.
[[nodiscard]] StepForecast forecast(const Job& job, const RunSummary& run, int cores);

/// Returns planned, simulated and measured step time, the parts of the difference, the load of other processes, and the
/// memory in use if the run uses GPUs. The difference is to the plan if there is one, else to the simulation:
///
///   compute    simulated minus planned: ops took longer than the plan says
///   messages   ops and waits for messages, beyond the simulated step
///   sums       waits for sums of gradients
///   waiting    waits for the slowest rank at the end of the step
///
/// A difference above a tenth also gets its largest part named, or the other processes. `cores` is the number of cores
/// available to this process.
[[nodiscard]] std::string summary(const Job& job, const RunSummary& run, int cores);

/// Returns the figures of summary() for `chimera diagnose`.
[[nodiscard]] SpeedReport speed_report(const Job& job, const RunSummary& run, int cores);

}  // namespace chimera
