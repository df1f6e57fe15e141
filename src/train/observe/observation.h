#pragma once

// Writes the outputs that need the times of all ranks: --trace (for ui.perfetto.dev), --op-times (JSON costs of ops),
// --timeline and --report (HTML pages). During training, each rank records the times of its instructions in a Tracer
// (runtime/tracer.h). After training, gather_steps() collects the last steps of all ranks and converts their times to
// the clock of rank 0. measured_steps() turns them into timelines, and write_observations() writes the files.

#include "launch/flight/flight_record.h"
#include "render/panel.h"
#include "simulate/costs.h"
#include "train/observe/measured_step.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Returns the description of the job for its flight records, which `chimera diagnose` reads after a hang or crash:
/// place of each launched rank, groups of gradient sums, and predicted times (`planned`). The process that creates
/// their folder adds it: the launcher or, for ranks that are threads or were started by another launcher, rank 0. After
/// a change of the running ranks, TrainerHandover replaces it.
[[nodiscard]] FlightJob flight_job(const JobShape& job, const PlannedTimes& planned);

/// Returns the steps that all ranks have traced, in seconds of rank 0's clock. Collective, between steps; all ranks get
/// the same result. It exchanges messages to measure how far the clocks differ.
[[nodiscard]] std::vector<RecordedStep> gather_steps(const JobShape& job, const DeviceOptions& device, RankId rank,
                                                     Transport& transport, const Tracer& tracer);

/// Returns [step][group * T + lane]: the timelines of the recorded steps. With tensor parallelism, there is one for
/// each of the T ranks that share a worker's layers; otherwise T is 1 and lane 0.
[[nodiscard]] std::vector<std::vector<MeasuredStep>> measured_steps(const JobShape& job,
                                                                    const std::vector<RecordedStep>& recorded);

/// Returns the content of the --trace file, in Chrome's JSON trace format; time 0 is the start of the first step. It
/// has the tracks of to_perfetto() (render/perfetto.h), and also recomputations, optimizer steps, all-reduces, and each
/// transfer from its send to the end of the receiver's wait. `changes` has a text for each time that the run changed
/// the order of its ops (changes_of_order() in telemetry/run_history.h). The last text is the name of a bar over all
/// steps; without texts, there is no bar.
[[nodiscard]] std::string trace_text(const JobShape& job, const std::vector<std::vector<MeasuredStep>>& steps,
                                     const std::vector<std::string>& changes = {});

/// Returns two panels: the measured step of median length in data-parallel group 0, and the result of simulate() with
/// `costs`. to_html() puts both on a common time axis.
[[nodiscard]] std::vector<Panel> timeline_panels(const Schedule& schedule,
                                                 const std::vector<std::vector<MeasuredStep>>& steps,
                                                 const CostModel& costs);

/// Writes the files that the user asked for, each atomically. For the rank that prints (RunOutputs::speaks()).
/// `recorded` is the result of gather_steps(); `metrics` has the JSON lines of all steps (to_json_line()). A loss or
/// return of ranks discards earlier records; if no step ran on all ranks after it, `recorded` is empty, and this
/// function prints a message instead of writing files. Throws ConfigError if a file cannot be written.
void write_observations(const Job& job, const std::vector<RecordedStep>& recorded, const RunSummary& run,
                        const std::string& metrics);

}  // namespace chimera
