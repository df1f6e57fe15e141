#include "render/excerpt.h"

#include <fmt/format.h>

#include <algorithm>

namespace chimera {

std::string excerpt(const Schedule& schedule, const std::vector<Place>& places) {
  constexpr std::size_t kAround = 4;
  std::string text;
  for (const Place& place : places) {
    const auto& ops = schedule.workers[place.worker];
    const std::size_t first = place.position > kAround ? place.position - kAround : 0;
    const std::size_t last = std::min(place.position + kAround + 1, ops.size());
    text += fmt::format("  worker {} |{}", place.worker, first > 0 ? " ..." : "");
    for (std::size_t i = first; i < last; ++i) {
      text += i == place.position ? fmt::format(" [{}]", to_text(ops[i])) : " " + to_text(ops[i]);
    }
    text += last < ops.size() ? " ...\n" : "\n";
  }
  return text;
}

}  // namespace chimera
