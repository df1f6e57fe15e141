#include "render/slots.h"

#include <vector>

#include "generate/registry.h"
#include "simulate/simulate.h"

namespace chimera {

Timeline in_slots(const Schedule& schedule, double whole_backward) {
  const StageCosts slot{.backward = whole_backward};
  const CostModel slots{std::vector<StageCosts>(static_cast<std::size_t>(schedule.stages), slot)};
  Timeline timeline = simulate(schedule, slots);
  return draws_forwards_late(schedule) ? forwards_just_in_time(schedule, slots, std::move(timeline)) : timeline;
}

}  // namespace chimera
