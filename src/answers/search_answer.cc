#include "answers/search_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "schedule/schedule_json.h"

namespace chimera {

std::span<const NamedPlacement> named_placements() {
  static const std::array kPlacements = {
      NamedPlacement{"bidirectional", PlacementKind::Bidirectional, {Axis::Pipelines, Axis::Chunks}},
      NamedPlacement{"rotated", PlacementKind::Rotated, {Axis::Pipelines}},
      NamedPlacement{"linear", PlacementKind::Linear},
      NamedPlacement{"loop", PlacementKind::Loop, {Axis::Chunks}, 2},
      NamedPlacement{"v", PlacementKind::Wave},
      NamedPlacement{"wave", PlacementKind::Wave, {Axis::Waves}},
  };
  return kPlacements;
}

bool NamedPlacement::takes(Axis axis) const { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

std::string search_json(const SearchResult& result) {
  std::string text = fmt::format(
      "{{\"makespan\": {}, \"lower_bound\": {}, \"gap\": {}, \"optimal\": {},\n"
      " \"peak_in_flight\": {}, \"origin\": \"{}\",\n"
      " \"pareto\": [",
      result.makespan, result.lower_bound, result.gap, result.gap == 0, result.peak_in_flight, result.origin);
  for (std::size_t i = 0; i < result.pareto.size(); ++i) {
    const ParetoPoint& point = result.pareto[i];
    text += fmt::format("{}{{\"makespan\": {}, \"peak_in_flight\": {}, \"origin\": \"{}\"}}", i == 0 ? "" : ",\n  ",
                        point.makespan, point.peak_in_flight, point.origin);
  }
  return text + "],\n \"schedule\": " + to_json(result.schedule) + "}\n";
}

}  // namespace chimera
