#pragma once

#include <string>
#include <vector>

#include "render/panel.h"
#include "simulate/costs.h"
#include "train/loop/trainer.h"
#include "train/observe/measured_step.h"
#include "train/setup/job.h"
#include "transport/transport.h"

// The page of --report: the run as its rank 0 saw it.

// What a run writes about itself at its end: --trace, --op-times, --timeline, --report.

namespace chimera {

/// The page (telemetry/report_page.h) of a run that has ended: `metrics` are the lines of its steps, `timelines` one
/// step as it ran and as simulated.
[[nodiscard]] std::string report_text(const Job& job, const RunSummary& run, const std::string& metrics,
                                      std::vector<Panel> timelines);

/// The steps that all ranks' tracers have kept, on rank 0's clock, whose offsets are measured now. All ranks call it
/// together, between steps; all get all.
[[nodiscard]] std::vector<RecordedStep> gather_steps(const Job& job, RankId rank, Transport& transport,
                                                     const Tracer& tracer);

/// The steps of all groups: [step][group]. `recorded` as gather_steps() returns it.
[[nodiscard]] std::vector<std::vector<MeasuredStep>> measured_steps(const Job& job,
                                                                    const std::vector<RecordedStep>& recorded);

/// All steps of all ranks in Chrome's JSON trace format, in real time from the first one on: as to_perfetto (one track
/// a rank), with recomputations and optimizer steps among the ops, all-reduces from their launch to their completion,
/// and the transfers that each rank receives, from the send to the end of the receiver's wait.
[[nodiscard]] std::string trace_text(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps);

/// The measured step of median length (of group 0), and what simulate() predicts at `costs`.
[[nodiscard]] std::vector<Panel> timeline_panels(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps,
                                                 const CostModel& costs);
/// A page with both on one time axis.
[[nodiscard]] std::string timeline_page(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps,
                                        const CostModel& costs);

/// Writes the files that the job's options ask for, each whole or not at all. `metrics`: the lines of the run's steps
/// (to_json_line), for --report. Throws ConfigError where a file cannot be written.
void write_observations(const Job& job, const std::vector<RecordedStep>& recorded, const RunSummary& run,
                        const std::string& metrics);

}  // namespace chimera
