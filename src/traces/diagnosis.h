#pragma once
// Answers why a traced pipeline is slow: what ran, where the time of a step went, what a simulation with the measured
// costs explains, and which schedules would be faster. `chimera diagnose` and cp.read_traces() print the answer.

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"
#include "traces/trace.h"

namespace chimera {

/// A faster schedule of the same micro-batches and workers.
struct BetterSchedule {
  Schedule schedule;
  double seconds = 0;     // Predicted step
  double peak_units = 0;  // Activations in flight on the worker with most, in stage units
  std::int64_t replicas = 1;
  bool within_memory = true;  // Whether it holds no more activations and weights than the traced schedule
  bool runs_in_torch = false;
  bool splits_stages = false;    // Whether its stages are parts of the traced ones
  bool splits_backward = false;  // Whether the times of I and W are not measured
};

struct TraceDiagnosis {
  Trace trace;
  CostModel costs;
  Timeline simulated;
  double even_seconds = 0;            // Predicted step if all stages took equal time
  std::vector<std::string> findings;  // Outliers, by name
  std::vector<BetterSchedule> better;
};

/// `search_seconds` limits the search for a better order; 0: no search.
[[nodiscard]] TraceDiagnosis diagnose_trace(Trace trace, double search_seconds);

/// Returns the costs of another number of equal stages, assuming that the time within a traced stage is evenly spread,
/// but for `host`, by kind, which an op takes whatever its size.
[[nodiscard]] CostModel costs_of_cut(const CostModel& costs, std::int64_t stages,
                                     const std::array<double, kOpKinds>& host = {});

[[nodiscard]] std::string to_text(const TraceDiagnosis& diagnosis);
[[nodiscard]] nlohmann::ordered_json to_json(const TraceDiagnosis& diagnosis);
/// Returns the step of median time as measured, and as simulated.
[[nodiscard]] std::vector<Panel> panels_of(const TraceDiagnosis& diagnosis);

/// Writes costs.json, ran.csv, better-1.csv (or .json, if torch cannot run it) and so on, and timeline.html.
void write_diagnosis(const TraceDiagnosis& diagnosis, const std::string& folder);

}  // namespace chimera
