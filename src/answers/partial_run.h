#pragma once

#include <cstddef>
#include <vector>

#include "render/panel.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera::playground {

struct PartialRun {
  Panel panel;                       // ops that never run follow the others, in their order
  std::vector<std::size_t> visited;  // [worker]: number of ops that run
};

/// Runs every op that can run, at costs without message times. Does not wait for missing ops. Requires ids in range and
/// a valid placement.
[[nodiscard]] PartialRun run_as_far_as_possible(const Schedule& schedule, const CostModel& costs);

}  // namespace chimera::playground
