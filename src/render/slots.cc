#include "render/slots.h"

#include <vector>

#include "generate/registry.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

CostModel slot_costs(const Schedule& schedule, double whole_backward) {
  const StageCosts slot{.backward = whole_backward};
  return {std::vector<StageCosts>(static_cast<std::size_t>(schedule.stages), slot)};
}

}  // namespace

Timeline in_slots(const Schedule& schedule, double whole_backward) {
  const CostModel slots = slot_costs(schedule, whole_backward);
  Timeline timeline = simulate(schedule, slots);
  return draws_forwards_late(schedule) ? forwards_just_in_time(schedule, slots, std::move(timeline)) : timeline;
}

Panel figure_of(const Schedule& schedule, double whole_backward) {
  return panel_of(schedule, in_slots(schedule, whole_backward), slot_costs(schedule, whole_backward));
}

}  // namespace chimera
