#pragma once
// Placements as a variable of the search: which workers hold which stages, where few enough ways exist to try them all.

#include <cstddef>
#include <functional>
#include <vector>

#include "schedule/schedule.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

/// No more are searched.
inline constexpr std::size_t kMostPlacements = 1000;

/// Every way to place `shape.pipelines` replicas of S = D v stages on D workers so that each worker has v stages of
/// each replica. Workers' names mean nothing, nor do those of replicas with equally many micro-batches: of placements
/// that differ by them alone, one is listed. Micro-batches are dealt evenly, in turn. Throws ConfigError where the
/// shape has no layout, more ops than a search can hold (kMostSearchedOps), or more than kMostPlacements.
[[nodiscard]] std::vector<Layout> every_layout(const PipelineShape& shape);

/// What search_placements() found.
struct PlacementSearch {
  SearchResult result;   // of the best placement; `lower_bound` holds for every order on any of them
  std::size_t best = 0;  // its index
};

/// Searches the problems, which differ in their placement alone, in rounds (search()): each round has the same part of
/// the time and searches the best quarter of those before it. A placement whose lower bound is no better than the best
/// find is searched no more. `starts` gives the schedules to start from on a layout. Throws as search() does, where no
/// placement leaves room; and for several placements where links tell workers apart (links_are_alike()).
[[nodiscard]] PlacementSearch search_placements(const std::vector<SearchProblem>& problems,
                                                const std::function<std::vector<Schedule>(const Layout&)>& starts,
                                                const SearchOptions& options);

}  // namespace chimera
