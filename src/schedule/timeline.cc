#include "schedule/timeline.h"

namespace chimera {

const char* to_text(IdleCause cause) {
  constexpr std::array<const char*, kIdleCauses> kNames = {"warm-up", "dependency", "latency", "sync", "imbalance"};
  return kNames[static_cast<std::size_t>(cause)];
}

std::array<double, kIdleCauses> idle_by_cause(std::span<const std::vector<Bubble>> workers) {
  std::array<double, kIdleCauses> idle{};
  for (const auto& bubbles : workers) {
    for (const Bubble& bubble : bubbles) idle[static_cast<std::size_t>(bubble.cause)] += bubble.end - bubble.start;
  }
  return idle;
}

}  // namespace chimera
