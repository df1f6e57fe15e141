#include "search/limits.h"

#include <algorithm>

namespace chimera {

double units_of_stage(const Layout& layout) {
  return static_cast<double>(layout.workers) / static_cast<double>(layout.stages);
}

HoldingLimit limit_in_flight(const Layout& layout, double units, const std::string& flag) {
  return {flag, std::vector<double>(static_cast<std::size_t>(layout.stages), units_of_stage(layout)),
          std::vector<double>(static_cast<std::size_t>(layout.workers), units)};
}

HoldingLimit limit_memory(const Layout& layout, double bytes, double weight_bytes, double activation_bytes,
                          const std::string& flag) {
  const double unit = units_of_stage(layout);
  CostModel costs;
  costs.memory.assign(static_cast<std::size_t>(layout.stages),
                      {.weights = weight_bytes * unit, .activations = activation_bytes * unit});
  return limit_memory(layout, bytes, costs, flag);
}

HoldingLimit limit_memory(const Layout& layout, double bytes, const CostModel& costs, const std::string& flag) {
  const bool recomputes = !costs.recompute.empty();
  HoldingLimit limit = limit_in_flight(layout, bytes, flag);
  std::vector<double> at_once(static_cast<std::size_t>(layout.workers), 0);
  for (std::size_t s = 0; s < costs.memory.size(); ++s) {
    const StageMemory& memory = costs.memory[s];
    limit.size_of_stage[s] = recomputes ? memory.boundary : memory.activations;
    for (const auto& row : layout.placement.worker_of) {
      const std::size_t worker = row[s].index();
      limit.room_of_worker[worker] -= memory.weights + memory.gradients + memory.optimizer;
      if (recomputes) at_once[worker] = std::max(at_once[worker], memory.activations - memory.boundary);
    }
  }
  for (std::size_t w = 0; w < at_once.size(); ++w) limit.room_of_worker[w] -= at_once[w];
  return limit;
}

}  // namespace chimera
