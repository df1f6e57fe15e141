#pragma once

// Searches over placements of stages as well as orders of ops (`chimera search --placement any`). It is for small
// problems only, because it begins with every placement; after each round of searches, the worst placements are
// dropped. Placements that become equal if workers or replicas are numbered differently are searched once.

#include <cstddef>

#include "schedule/schedule.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

/// Maximum number of placements that all_layouts() returns.
inline constexpr std::size_t kMaxPlacements = 1000;

/// Returns every placement of `shape.pipelines` replicas on D = `shape.stages` workers, with v = `shape.chunks` stages
/// of each replica per worker, S = D v in all. Of placements that differ only in how workers, or replicas with equally
/// many micro-batches, are numbered, returns one. Micro-batch m belongs to replica m mod shape.pipelines. Throws
/// ConfigError if the shape has no layout, or exceeds kMaxSearchedOps or kMaxPlacements.
[[nodiscard]] std::vector<SearchLayout> all_layouts(const PipelineShape& shape);

/// Result of search_placements().
struct PlacementSearch {
  SearchResult result;   // result of the best placement; `lower_bound` holds for all placements
  std::size_t best = 0;  // index of the best placement in `problems`
};

/// Throws ConfigError unless workers_are_alike() for all problems. With unequal links, placements that all_layouts()
/// omits, because they differ only in the numbers of workers, could be faster.
void require_equal_links(const std::vector<SearchProblem>& problems);

/// Searches problems that differ only in placement, in rounds of equal time. After each round, drops placements whose
/// lower bound is not below the best makespan, and keeps the fastest quarter of the others. `starts(i)` returns the
/// initial schedules for problem i. Throws ConfigError, as search() does, if no placement has enough memory.
[[nodiscard]] PlacementSearch search_placements(const std::vector<SearchProblem>& problems,
                                                const std::function<std::vector<Schedule>(std::size_t)>& starts,
                                                const SearchOptions& options);

}  // namespace chimera
