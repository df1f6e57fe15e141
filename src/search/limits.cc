#include "search/limits.h"

#include <algorithm>

namespace chimera {

double units_of_stage(const SearchLayout& layout) {
  return static_cast<double>(layout.workers) / static_cast<double>(layout.stages);
}

double units_of_slice(const SearchLayout& layout) {
  return units_of_stage(layout) / static_cast<double>(layout.slices);
}

InFlightLimit limit_in_flight(const SearchLayout& layout, double units, const std::string& flag) {
  return {flag, std::vector<double>(static_cast<std::size_t>(layout.stages), units_of_stage(layout)),
          std::vector<double>(static_cast<std::size_t>(layout.workers), units)};
}

InFlightLimit limit_memory(const SearchLayout& layout, double bytes, double weight_bytes, double activation_bytes,
                           const std::string& flag) {
  const double unit = units_of_stage(layout);
  CostModel costs;
  costs.memory.assign(static_cast<std::size_t>(layout.stages),
                      {.weights = weight_bytes * unit, .activations = activation_bytes * unit});
  return limit_memory(layout, bytes, costs, flag);
}

InFlightLimit limit_memory(const SearchLayout& layout, double bytes, const CostModel& costs, const std::string& flag) {
  const bool recomputes = !costs.recompute.empty();
  const bool sliced = layout.slices > 1;
  const auto slices = static_cast<double>(layout.slices);
  const double longest = sliced ? slices * std::ranges::max(parts_of_tokens(costs.slices, layout.slices)) : 1;
  InFlightLimit limit = limit_in_flight(layout, bytes, flag);
  std::vector<double> at_once(static_cast<std::size_t>(layout.workers), 0);
  const auto holders = stage_groups(layout.placement);
  for (std::size_t s = 0; s < costs.memory.size(); ++s) {
    const StageMemory& memory = costs.memory[s];
    const double between_slices = sliced ? memory.keys_and_values : 0;
    // With several slices, every slice counts as the longest, because a InFlightLimit has one size per stage.
    limit.size_of_stage[s] = longest * ((recomputes ? memory.boundary : memory.activations) + between_slices);
    for (const WorkerId holder : holders[s]) {
      const std::size_t worker = holder.index();
      limit.room_of_worker[worker] -= memory.weights + memory.gradients + memory.optimizer;
      // While a worker recomputes, one slice has all its activations again; only one op runs at a time.
      const double again = longest / slices * (memory.activations - memory.boundary);
      if (recomputes) at_once[worker] = std::max(at_once[worker], again);
    }
  }
  for (std::size_t w = 0; w < at_once.size(); ++w) limit.room_of_worker[w] -= at_once[w];
  return limit;
}

}  // namespace chimera
