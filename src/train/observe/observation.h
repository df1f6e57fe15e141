#pragma once

// Outputs that need the times of all ranks: --trace, --op-times, --timeline and --report. Ranks trace their
// instructions (runtime/tracer.h). After training, gather_steps() brings the last steps of all ranks to rank 0's clock
// (messages measure the offsets), measured_steps() turns them into timelines, and write_observations() writes the
// files.

#include <string>
#include <vector>

#include "render/panel.h"
#include "simulate/costs.h"
#include "train/observe/measured_step.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Returns the traced steps of all ranks on rank 0's clock. All ranks call it between steps and get the same result.
[[nodiscard]] std::vector<RecordedStep> gather_steps(const Job& job, RankId rank, Transport& transport,
                                                     const Tracer& tracer);

/// Returns [step][group].
[[nodiscard]] std::vector<std::vector<MeasuredStep>> measured_steps(const Job& job,
                                                                    const std::vector<RecordedStep>& recorded);

/// Returns Chrome's JSON trace format, with times from the first step on. Adds recomputations, optimizer steps,
/// all-reduces, and transfers from send to the end of the wait to the tracks of to_perfetto.
[[nodiscard]] std::string trace_text(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps);

/// Returns the measured step of median length in group 0, and simulate() at `costs`.
[[nodiscard]] std::vector<Panel> timeline_panels(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps,
                                                 const CostModel& costs);
/// Returns HTML with both on a common time axis.
[[nodiscard]] std::string timeline_page(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps,
                                        const CostModel& costs);

/// Writes the requested files atomically. `metrics` holds the steps' lines (to_json_line()). Throws ConfigError if a
/// file cannot be written.
void write_observations(const Job& job, const std::vector<RecordedStep>& recorded, const RunSummary& run,
                        const std::string& metrics);

}  // namespace chimera
