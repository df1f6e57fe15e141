#pragma once

// `chimera search`: the request, its answer, and the answer as text and JSON.

#include "answers/cost_request.h"
#include "answers/schedule_request.h"
#include "generate/generator.h"
#include "render/text.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

/// A placement (map from stages to workers) that a search accepts by name.
struct NamedPlacement {
  const char* name;
  /// Returns the inputs of a search with this placement: one, or several for `any`. The shape has the numbers of stages
  /// and micro-batches.
  std::vector<SearchLayout> (*layouts)(const PipelineShape& shape);
  std::vector<Axis> axes = {};  // shape parameters that the placement has, besides stages, micro-batches and slices
  std::int64_t chunks = 1;      // default of PipelineShape::chunks: stages of a pipeline on each worker
};

/// Returns all placements but `any`, the default first.
[[nodiscard]] std::span<const NamedPlacement> named_placements();

/// The request of `chimera search`.
struct SearchRequest {
  ScheduleRequest start;  // schedule to improve on its own placement; without one, `shape` and `placement` count
  ShapeRequest shape;
  std::string placement;  // empty: the best of all but `any` that take the given parameters
  CostRequest costs;
  bool whole_backward = false;  // the same as split_backward = false
  // Takes precedence. Default: unless `backward` is given or the start has whole backwards
  std::optional<bool> split_backward = {};
  LimitRequest limits;
  std::optional<double> seconds = {};           // default: usual_seconds, or no limit if `iterations` is given
  std::optional<std::int64_t> iterations = {};  // number of schedules to try
  std::int64_t seed = 0;
  double usual_seconds = 10;  // default time limit of the caller, such as the playground

  /// Visits all fields but `start`.
  void visit(Door& door);
};

/// The best schedule, and what was searched.
struct SearchAnswer {
  SearchResult result;
  CostModel costs;
  std::string placement;                // of the best schedule, or the name of the start
  std::vector<std::string> placements;  // names of all placements that were searched
  std::vector<std::string> notes;       // fields without effect
};

/// Returns the input of a search: the placement and micro-batches of a schedule. Throws ConfigError if the schedule is
/// asynchronous, has micro-batches of half size (Schedule::micro_batch_scale), or covers several data-parallel groups.
[[nodiscard]] SearchLayout search_layout_of(const Schedule& schedule);

/// Returns the limits and the seed of a search.
[[nodiscard]] SearchOptions options_of(const SearchRequest& request,
                                       const std::function<void(const SearchProgress&)>& progress);

/// Searches. Calls `progress`, which may be empty, periodically on this thread. Throws ConfigError or ScheduleError for
/// an invalid request.
[[nodiscard]] SearchAnswer answer(const SearchRequest& request,
                                  const std::function<void(const SearchProgress&)>& progress);

/// Returns a picture, the makespan, its lower bound, the Pareto front and the placement.
[[nodiscard]] std::string search_text(const SearchAnswer& answer, const TextStyle& style);
/// Returns the best schedule of a search, its makespan, lower bound and peak of activations, and the Pareto front as
/// JSON. `placement` is the name of its placement; if it is empty, the JSON has no field `placement`.
[[nodiscard]] std::string search_json(const SearchResult& result, const std::string& placement = "");

}  // namespace chimera
