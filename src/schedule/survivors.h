#pragma once
// Which workers of a schedule are lost. If a rank fails, training can continue without it (--recover reroute), with a
// schedule in which other workers run its stages (generate/detours.h). The lost workers keep their numbers in this
// schedule, but hold no stage.

#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// Returns [worker]: whether the worker holds a stage of some replica. A worker without a stage is lost: it has no ops,
/// lower() gives it no instructions, and bubble ratios leave it out. Ignores workers of the placement that are not
/// below `workers`.
[[nodiscard]] inline std::vector<bool> holds_a_stage(const Placement& placement, std::size_t workers) {
  std::vector<bool> holds(workers, false);
  for (const auto& row : placement.worker_of) {
    for (const WorkerId worker : row) {
      if (worker.value() >= 0 && worker.index() < workers) holds[worker.index()] = true;
    }
  }
  return holds;
}

/// Returns the lost workers, ascending.
[[nodiscard]] inline std::vector<std::size_t> lost_workers(const Schedule& schedule) {
  std::vector<std::size_t> lost;
  const std::vector<bool> holds = holds_a_stage(schedule.placement, schedule.workers.size());
  for (std::size_t w = 0; w < holds.size(); ++w) {
    if (!holds[w]) lost.push_back(w);
  }
  return lost;
}

}  // namespace chimera
