#pragma once

// `chimera simulate`, which the playground and Python ask for too: the request, its answer, and the answer as text
// and JSON. Pictures come from src/render.

#include "answers/cost_request.h"
#include "answers/schedule_request.h"
#include "render/panel.h"
#include "render/text.h"

namespace chimera {

/// The request of `chimera simulate`.
struct SimulateRequest {
  ScheduleRequest schedule;
  PairRequest pairs;
  LostRequest lost;
  CostRequest costs;
  LimitRequest limits;
  std::int64_t steps = 1;                  // number of consecutive steps
  std::optional<std::int64_t> cores = {};  // that all workers share; default: each worker has its own
  bool permute_micro_batches = false;      // whether to assign micro-batches of unequal work so that a step is short
  // Slowdowns of overlapping ops and transfers: `ops_by_sums`, `sums_by_ops` and `transfers` of Contention
  // (simulate/contention.h); empty: none
  std::vector<double> contention = {};

  void visit(Door& door);
};

/// Simulated schedules.
struct Simulation {
  std::vector<Panel> panels;  // the schedule first, then those of ScheduleRequest::with
  FollowedSchedule followed;  // schedule of the first panel, and its comparison with the one without lost workers
  // [micro-batch of the schedule]: the micro-batch of the data for it; empty unless permute_micro_batches
  std::vector<std::int64_t> micro_batch_of_place = {};
  std::vector<std::string> notes;  // fields without effect
};

/// Simulates the schedule and the others. Throws ConfigError for an invalid request or if the schedule exceeds the
/// limits, and ScheduleError for a schedule that cannot run.
[[nodiscard]] Simulation answer(const SimulateRequest& request);

/// Returns the first panel as JSON (render/timeline_json.h), with the fields of lost and slow workers.
[[nodiscard]] std::string simulation_json(const Simulation& simulation);

/// Returns pictures, totals, critical path, workers and idle time by cause.
[[nodiscard]] std::string simulate_text(const Simulation& simulation, const TextStyle& style);

}  // namespace chimera
