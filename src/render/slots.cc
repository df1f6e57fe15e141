#include "render/slots.h"

#include <fmt/format.h>
#include <vector>

#include "simulate/simulate.h"

namespace chimera {

std::string direction(const Schedule& schedule, std::size_t replica) {
  const std::vector<WorkerId>& workers = schedule.placement.worker_of[replica];
  const auto count = static_cast<std::int64_t>(schedule.workers.size());
  // Whether each of the first D stages is `step` workers further than the stage before, around the end of the workers.
  const auto steps = [&](std::int64_t step) {
    if (count < 2 || workers.size() % schedule.workers.size() != 0) return false;
    for (std::size_t s = 1; s < schedule.workers.size(); ++s) {
      if ((workers[s - 1].value() + step + count) % count != workers[s].value()) return false;
    }
    return true;
  };
  // Both directions are equal modulo two workers.
  if (steps(1) && (count > 2 || workers[0].value() == 0)) return "down";
  return steps(-1) ? "up" : "";
}

std::string replica_name(const Schedule& schedule, std::size_t replica) {
  const std::string way = direction(schedule, replica);
  return way.empty() ? fmt::format("replica {}", replica) : way;
}

namespace {

// The paper draws all ops with equal lengths, also backwards, which take about twice as long as forwards.
CostModel slot_costs(const Schedule& schedule, double whole_backward) {
  const StageCosts slot{.backward = whole_backward};
  return {std::vector<StageCosts>(static_cast<std::size_t>(schedule.stages), slot)};
}

}  // namespace

Timeline slot_timeline(const Schedule& schedule, double whole_backward) {
  // Without latency and all-reduces: a figure shows the order only.
  const CostModel slots = slot_costs(schedule, whole_backward);
  Timeline timeline = simulate(schedule, slots);
  return schedule.late_forwards ? forwards_just_in_time(schedule, slots, std::move(timeline)) : timeline;
}

Panel paper_figure(const Schedule& schedule, double whole_backward) {
  return panel_of(schedule, slot_timeline(schedule, whole_backward), slot_costs(schedule, whole_backward));
}

}  // namespace chimera
