#pragma once
// Which workers of a schedule are lost. A schedule around lost workers (generate/detours.h) keeps their numbers, but
// gives them no stage.

#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// Returns [worker]: whether the worker holds a stage of some replica. A worker without a stage is lost: it has no ops,
/// lower() gives it no instructions, and ratios leave it out. Ignores entries that are not in 0 .. workers-1.
[[nodiscard]] inline std::vector<bool> holds_a_stage(const Placement& placement, std::size_t workers) {
  std::vector<bool> holds(workers, false);
  for (const auto& row : placement.worker_of) {
    for (const WorkerId worker : row) {
      if (worker.value() >= 0 && worker.index() < workers) holds[worker.index()] = true;
    }
  }
  return holds;
}

}  // namespace chimera
