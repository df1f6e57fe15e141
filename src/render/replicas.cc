#include "render/replicas.h"

#include <fmt/format.h>

namespace chimera {

std::string direction(const Schedule& schedule, std::size_t replica) {
  const std::vector<WorkerId>& workers = schedule.placement.worker_of[replica];
  const auto count = static_cast<std::int64_t>(schedule.workers.size());
  const auto steps = [&](std::int64_t step) {
    if (count < 2 || workers.size() % schedule.workers.size() != 0) return false;
    for (std::size_t s = 1; s < schedule.workers.size(); ++s) {
      if ((workers[s - 1].value() + step + count) % count != workers[s].value()) return false;
    }
    return true;
  };
  // Through two workers both ways look the same modulo their number.
  if (steps(1) && (count > 2 || workers[0].value() == 0)) return "down";
  return steps(-1) ? "up" : "";
}

std::string replica_name(const Schedule& schedule, std::size_t replica) {
  const std::string way = direction(schedule, replica);
  return way.empty() ? fmt::format("replica {}", replica) : way;
}

}  // namespace chimera
