#pragma once
// What `chimera search` takes and prints.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generate/shape_axis.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

/// What each placement is called, the parameters of the shape that it takes, and its chunks where nobody says them.
struct NamedPlacement {
  const char* name;
  PlacementKind kind;
  std::vector<Axis> axes = {};
  std::int64_t chunks = 1;

  [[nodiscard]] bool takes(Axis axis) const;
};

/// All of them; the first is the default.
[[nodiscard]] std::span<const NamedPlacement> named_placements();

/// The find and its front, with the schedule as JSON.
[[nodiscard]] std::string search_json(const SearchResult& result);

}  // namespace chimera
