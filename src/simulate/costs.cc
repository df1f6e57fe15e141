#include "simulate/costs.h"

#include "core/mapped.h"
#include "schedule/slice_bounds.h"

namespace chimera {

std::vector<double> LinkCosts::times() const {
  if (!seconds.empty()) return seconds;
  return mapped(bytes, [this](double each) { return beta * each; });
}

std::vector<double> parts_of_tokens(const SliceCosts& costs, std::int64_t slices) {
  const auto bounds = costs.bounds.empty() ? balanced_bounds(slices, costs.attention) : costs.bounds;
  std::vector<double> parts;
  for (std::size_t j = 0; j + 1 < bounds.size(); ++j) parts.push_back(bounds[j + 1] - bounds[j]);
  return parts;
}

std::vector<double> parts_of_time(const SliceCosts& costs, std::int64_t slices) {
  if (costs.bounds.empty())
    return std::vector<double>(static_cast<std::size_t>(slices), 1 / static_cast<double>(slices));
  std::vector<double> parts;
  for (std::size_t j = 0; j + 1 < costs.bounds.size(); ++j) {
    const double x = costs.bounds[j];
    const double y = costs.bounds[j + 1];
    parts.push_back((1 - costs.attention) * (y - x) + costs.attention * (y * y - x * x));
  }
  return parts;
}

// Users give times of a worker's whole share of the model, of which each of its stages is an equal part.
double stage_fraction(const Schedule& schedule) {
  return static_cast<double>(workers_per_group(schedule)) / static_cast<double>(schedule.stages);
}

CostModel CostModel::uniform(const Schedule& schedule, const StageCosts& share, double latency) {
  StageCosts stage = share;
  for (const auto time : kStageTimes) stage.*time *= stage_fraction(schedule);
  return {.stages = std::vector<StageCosts>(static_cast<std::size_t>(schedule.stages), stage), .latency = latency};
}

}  // namespace chimera
