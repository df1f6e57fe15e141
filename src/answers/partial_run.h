#pragma once
// How far a schedule runs whose ops wait for each other, or are not all there.

#include <cstddef>
#include <vector>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera::playground {

struct PartialRun {
  Panel panel;                       // ops that never run stand behind those that do, in their order
  std::vector<std::size_t> visited;  // [worker]: how many of its ops run
};

/// Runs every op that can run, at these costs without messages' time; ops that are missing are not waited for. Requires
/// ids in range and a right placement.
[[nodiscard]] PartialRun run_as_far_as_possible(const Schedule& schedule, const CostModel& costs);

}  // namespace chimera::playground
