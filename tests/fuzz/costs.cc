// Fuzzes the costs of a model.

#include <array>
#include <cmath>

#include "fuzz/fuzzer.h"
#include "generate/registry.h"
#include "simulate/costs_json.h"
#include "simulate/simulate.h"

namespace chimera::testing {
namespace {

/// Costs have one list entry per stage and are refused for another number of stages.
constexpr std::array<std::int64_t, 3> kStages = {1, 2, 4};

void exercise_costs(std::string_view bytes) {
  for (const std::int64_t stages : kStages) {
    const auto costs = read_or_refuse([&] { return costs_from_json(std::string(bytes), kSource, stages); });
    if (!costs) continue;
    const std::string written = costs_to_json(*costs);
    require(costs_to_json(costs_from_json(written, kSource, stages)) == written, "costs read back");
    const Schedule schedule = find_generator("1f1b").generate({.stages = stages, .micro_batches = 3});
    const Timeline timeline = simulate(schedule, *costs);
    require(std::isfinite(timeline.makespan), "times are finite");
    require(timeline.makespan >= timeline.lower_bound * (1 - 1e-9), "no makespan is below the bound");
  }
}

}  // namespace

const Fuzzer kCosts("costs", exercise_costs);

}  // namespace chimera::testing
