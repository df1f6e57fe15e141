#include <algorithm>

#include "answers/answers.h"
#include "answers/requests.h"
#include "answers/search_answer.h"
#include "core/error.h"
#include "core/nearest.h"
#include "schedule/schedule_json.h"
#include "search/limits.h"
#include "search/starts.h"

namespace chimera::playground {
namespace {

constexpr double kSecondsBetweenReports = 0.1;

/// Where the ops are to be ordered, and from which orders the search sets out.
struct Start {
  Layout layout;
  std::vector<Schedule> schedules;
};

/// That of a schedule: its placement, and its own order.
Start start_from(const JsonValue& value) {
  Schedule schedule = valid_schedule(value);
  if (schedule.updates || schedule.micro_batch_scale != 1)
    throw ConfigError("search: only synchronous schedules of full micro-batches can be searched");
  Layout layout{static_cast<std::int64_t>(schedule.workers.size()), schedule.stages, schedule.placement,
                micro_batches_of_replicas(schedule)};
  return {std::move(layout), {std::move(schedule)}};
}

/// That of a shape and a placement's name: all generated orders.
Start start_of_shape(const JsonValue& request) {
  const std::string name = text_or(request, "placement", named_placements().front().name);
  std::vector<std::string> known;
  for (const NamedPlacement& placement : named_placements()) {
    known.emplace_back(placement.name);
    if (name != placement.name) continue;
    PipelineShape usual;
    usual.chunks = placement.chunks;
    const PipelineShape shape = requested_shape(request, usual);
    Layout layout = layout_of(placement.kind, shape);
    std::vector<Schedule> schedules = generated_starts(layout, shape);
    return {std::move(layout), std::move(schedules)};
  }
  throw ConfigError(unknown_name("placement", name, known));
}

bool splits_backwards(const Start& start) {
  if (start.schedules.empty()) return true;
  return std::any_of(
      start.schedules.front().workers.begin(), start.schedules.front().workers.end(), [](const std::vector<Op>& ops) {
        return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::BackwardInput; });
      });
}

/// Reports, not too often, how far a search is.
std::function<void(const SearchProgress&)> reporter(const Progress& progress) {
  if (!progress) return nullptr;
  return [progress, next = 0.0](const SearchProgress& now) mutable {
    if (now.seconds < next) return;
    next = now.seconds + kSecondsBetweenReports;
    progress(Json{
        {"seconds", now.seconds}, {"makespan", now.makespan}, {"lower_bound", now.lower_bound}, {"origin", now.origin}}
                 .dump());
  };
}

SearchOptions requested_options(const JsonValue& request, const Progress& progress) {
  SearchOptions options;
  options.seed = static_cast<std::uint64_t>(count_or(request, "seed", 0));
  options.progress = reporter(progress);
  if (request.has("iterations")) options.iterations = request.count("iterations", 1);
  options.seconds.reset();
  if (request.has("seconds") || !options.iterations) options.seconds = number_or(request, "seconds", 1);
  return options;
}

}  // namespace

Json searched(const JsonValue& request, const Progress& progress) {
  Start start = request.has("schedule") ? start_from(request.field("schedule")) : start_of_shape(request);
  const Schedule empty = without_ops(start.layout);
  SearchProblem problem{
      start.layout, requested_costs(request, empty), truth_or(request, "split_backward", splits_backwards(start)), {}};
  if (request.has("max_in_flight"))
    problem.limits.push_back(limit_in_flight(problem.layout, request.number("max_in_flight"), "max_in_flight"));
  const SearchResult result = search(problem, start.schedules, requested_options(request, progress));
  Json json = Json::parse(search_json(result));
  json["schedule"] = {{"text", to_json(result.schedule)}};
  return json;
}

}  // namespace chimera::playground
