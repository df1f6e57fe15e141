#pragma once

// Search over placements as well as orders (--placement any). Small problems only: every placement is searched, in
// rounds that drop the worst. Placements that differ only in names are searched once.

#include <cstddef>
#include <functional>
#include <vector>

#include "schedule/schedule.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

inline constexpr std::size_t kMostPlacements = 1000;

/// Returns every placement of `shape.pipelines` replicas of S = D v stages on D workers, with v stages of each replica
/// per worker. Lists placements once that differ only in names of workers, or of replicas with equally many
/// micro-batches. Deals micro-batches round-robin. Throws ConfigError if the shape has no layout, or exceeds
/// kMostSearchedOps or kMostPlacements.
[[nodiscard]] std::vector<Layout> every_layout(const PipelineShape& shape);

struct PlacementSearch {
  SearchResult result;   // result of the best placement; `lower_bound` holds for all placements
  std::size_t best = 0;  // its index
};

/// Throws ConfigError unless links_are_alike() for all problems. every_layout() omits placements that differ only in
/// names of workers, which requires equal links.
void require_equal_links(const std::vector<SearchProblem>& problems);

/// Searches problems that differ only in placement, in rounds of equal time. After each round, drops placements whose
/// lower bound reaches the best makespan, and keeps the fastest quarter of the others. `starts` returns the initial
/// schedules of the problem with this index. Throws as search() does if no placement has enough memory.
[[nodiscard]] PlacementSearch search_placements(const std::vector<SearchProblem>& problems,
                                                const std::function<std::vector<Schedule>(std::size_t)>& starts,
                                                const SearchOptions& options);

}  // namespace chimera
