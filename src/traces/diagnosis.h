#pragma once
// Answers why a traced pipeline is slow: what ran, where the time of a step went, what a simulation with the measured
// costs explains, and which schedules would be faster. `chimera diagnose` and read_traces() of the Python package print
// the answer.

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"
#include "traces/trace.h"

namespace chimera {

/// A schedule of the same micro-batches and workers with a shorter predicted step.
struct BetterSchedule {
  Schedule schedule;
  std::string file;              // Name of its file in the folder of write_diagnosis()
  double seconds = 0;            // Predicted time of a step
  double peak_units = 0;         // Activations in flight on the worker with most, in stage units
  std::int64_t replicas = 1;     // Copies of the model, and hence of the weights
  bool within_memory = true;     // Whether it holds no more activations and weights than the traced schedule
  bool runs_in_torch = false;    // Whether stages are placed as torch places them: in a loop or a V
  bool splits_stages = false;    // Whether its stages are parts of the traced ones
  bool splits_backward = false;  // Whether it has I and W whose times are estimated: the trace has only B
};

/// What diagnose_trace() has found. All times are in seconds.
struct TraceDiagnosis {
  Trace trace;
  CostModel costs;
  Timeline simulated;                 // One step; `period` is the time from step to step, even if steps overlap
  double even_seconds = 0;            // Predicted step if all stages took equal time
  std::vector<std::string> findings;  // Sentences about stages, ranks, links and ops that are unusually slow
  // Fastest first: at most 5 within the memory of the traced schedule, then at most 5 that need more
  std::vector<BetterSchedule> better;
};

/// Simulates the traced schedule and all known_schedules() with the measured costs. With `search_seconds` above 0, also
/// searches for a better order of ops for so many seconds, if there is one replica and at most 20,000 ops.
[[nodiscard]] TraceDiagnosis diagnose_trace(Trace trace, double search_seconds);

/// Returns the costs if the model is cut into `stages` equal stages, assuming that the time within a traced stage is
/// evenly spread, except for `host` [kind]: the seconds of each op that do not depend on its size.
[[nodiscard]] CostModel costs_of_cut(const CostModel& costs, std::int64_t stages,
                                     const std::array<double, kOpKinds>& host = {});

/// Return the report of `chimera diagnose` as text and as JSON.
[[nodiscard]] std::string to_text(const TraceDiagnosis& diagnosis);
[[nodiscard]] nlohmann::ordered_json to_json(const TraceDiagnosis& diagnosis);
/// Returns the step of median time as measured, and as simulated.
[[nodiscard]] std::vector<Panel> panels_of(const TraceDiagnosis& diagnosis);

/// Writes costs.json, ran.csv, better-1.csv (or .json, if torch cannot run it) and so on, and timeline.html into the
/// folder, which it creates. Throws ConfigError if a file cannot be written (write_whole()) or the schedule is too
/// large for the page (to_html()), Error if the disk is full.
void write_diagnosis(const TraceDiagnosis& diagnosis, const std::string& folder);

}  // namespace chimera
