#pragma once

// Searches over placements of stages as well as orders of ops (`chimera search --placement any`). It is for small
// problems only, because it searches every placement; rounds drop the worst ones. Placements that differ only in the
// numbers of workers or replicas are searched once.

#include <cstddef>
#include <functional>
#include <vector>

#include "schedule/schedule.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

inline constexpr std::size_t kMaxPlacements = 1000;

/// Returns every placement of `shape.pipelines` replicas of S = D v stages on D workers, with v stages of each replica
/// per worker. Of placements that differ only in the numbers of workers, or of replicas with equally many
/// micro-batches, returns one. Micro-batch m belongs to replica m mod shape.pipelines. Throws ConfigError if the shape
/// has no layout, or exceeds kMaxSearchedOps or kMaxPlacements.
[[nodiscard]] std::vector<SearchLayout> all_layouts(const PipelineShape& shape);

struct PlacementSearch {
  SearchResult result;   // result of the best placement; `lower_bound` holds for all placements
  std::size_t best = 0;  // index of the best placement
};

/// Throws ConfigError unless links_are_alike() for all problems. Otherwise placements that differ only in the numbers
/// of workers would have different makespans, and all_layouts() omits such placements.
void require_equal_links(const std::vector<SearchProblem>& problems);

/// Searches problems that differ only in placement, in rounds of equal time. After each round, drops placements whose
/// lower bound is not below the best makespan, and keeps the fastest quarter of the others. `starts(i)` returns the
/// initial schedules for problem i. Throws as search() does if no placement has enough memory.
[[nodiscard]] PlacementSearch search_placements(const std::vector<SearchProblem>& problems,
                                                const std::function<std::vector<Schedule>(std::size_t)>& starts,
                                                const SearchOptions& options);

}  // namespace chimera
