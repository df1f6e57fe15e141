#pragma once

#include <cstddef>
#include <vector>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera::playground {

struct PartialRun {
  Panel panel;                       // all ops; those that cannot run are placed in order after the end of the others
  std::vector<std::size_t> visited;  // [worker]: number of ops that can run
};

/// Simulates the ops that can run, without message times. Skips ops whose inputs never arrive, and all later ops of the
/// same worker. Requires ids in range and a valid placement.
[[nodiscard]] PartialRun run_as_far_as_possible(const Schedule& schedule, const CostModel& costs);

}  // namespace chimera::playground
