#include "schedule/timeline.h"

namespace chimera {

const char* to_text(IdleCause cause) {
  switch (cause) {
    case IdleCause::WarmUp: return "warm-up";
    case IdleCause::Dependency: return "dependency";
    case IdleCause::Latency: return "latency";
    case IdleCause::Sync: return "sync";
    case IdleCause::Imbalance: return "imbalance";
  }
  return "";
}

std::array<double, kIdleCauses> idle_by_cause(std::span<const std::vector<Bubble>> workers) {
  std::array<double, kIdleCauses> idle{};
  for (const auto& bubbles : workers) {
    for (const Bubble& bubble : bubbles) idle[static_cast<std::size_t>(bubble.cause)] += bubble.end - bubble.start;
  }
  return idle;
}

}  // namespace chimera
