// answer() makes a SearchProblem for each placement that the request allows, or for the one of a given schedule,
// searches all of them and returns the best. A problem is a layout, its costs and limits, and whether backwards are
// split.

#include "answers/search_answer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "render/text.h"
#include "schedule/schedule_json.h"
#include "search/instance.h"
#include "search/list_scheduling.h"
#include "search/placements.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

// A larger picture hides the result that follows it.
constexpr std::int64_t kMaxDrawnOps = 400;

constexpr const char* kAnyPlacement = "any";

template <PlacementKind Kind>
std::vector<SearchLayout> one_layout(const PipelineShape& shape) {
  return {make_search_layout(Kind, shape)};
}

/// The last one is --placement any, which is not a placement itself.
const std::array kPlacements = {
    NamedPlacement{"bidirectional", one_layout<PlacementKind::Bidirectional>, {Axis::Pipelines, Axis::Chunks}},
    NamedPlacement{"rotated", one_layout<PlacementKind::Rotated>, {Axis::Pipelines}},
    NamedPlacement{"linear", one_layout<PlacementKind::Linear>},
    NamedPlacement{"loop", one_layout<PlacementKind::Loop>, {Axis::Chunks}, 2},
    NamedPlacement{"v", one_layout<PlacementKind::Wave>},
    NamedPlacement{"wave", one_layout<PlacementKind::Wave>, {Axis::Waves}},
    NamedPlacement{kAnyPlacement, all_layouts, {Axis::Pipelines, Axis::Chunks}},
};

std::vector<std::string> placement_names() { return mapped<std::string>(kPlacements, &NamedPlacement::name); }

bool takes(const NamedPlacement& placement, Axis axis) {
  return axis == Axis::Slices || std::ranges::count(placement.axes, axis) > 0;
}

/// Without a name, returns all that accept the given parameters, or the first if there is none.
std::vector<NamedPlacement> chosen_placements(const SearchRequest& request) {
  if (!request.placement.empty()) return {*std::ranges::find(kPlacements, request.placement, &NamedPlacement::name)};
  std::vector<NamedPlacement> chosen;
  for (const NamedPlacement& placement : named_placements()) {
    const auto is_refused = [&](const AxisValues& given) {
      return given.is_given() && !takes(placement, given.axis->axis);
    };
    if (std::ranges::none_of(request.shape.axes, is_refused)) chosen.push_back(placement);
  }
  // The error of the first placement then names the parameter that none accepts.
  if (chosen.empty()) chosen.push_back(named_placements().front());
  return chosen;
}

/// Example: `--pipelines and --chunks`.
std::string flags_of(const NamedPlacement& placement) {
  const auto flags = mapped(placement.axes, [](Axis axis) { return shape_axis(axis).flag(); });
  return flags.empty() ? "no such flag" : fmt::format("{}", fmt::join(flags, " and "));
}

PipelineShape chosen_shape(const ShapeRequest& shape, const NamedPlacement& placement) {
  shape.require_counts("search");
  for (const AxisValues& given : shape.axes) {
    if (!given.is_given() || takes(placement, given.axis->axis)) continue;
    reject("search: {} does not apply to --placement {}, which takes {}", given.axis->flag(), placement.name,
           flags_of(placement));
  }
  PipelineShape usual;
  usual.chunks = placement.chunks;
  return shape.with_given_values(usual);
}

SearchProblem problem_of(const SearchRequest& request, const SearchLayout& layout, bool has_split_start = true) {
  // A backward is whole if only `backward` gives its cost.
  const bool splits =
      request.split_backward.value_or(!request.whole_backward && !request.costs.backward && has_split_start);
  SearchProblem problem{layout, request.costs.costs_of(without_ops(layout)), splits, {}};
  const LimitRequest& limits = request.limits;
  if (limits.max_in_flight) problem.limits.push_back(limit_in_flight(layout, *limits.max_in_flight, "--max-in-flight"));
  // Bytes of stages come from the request or, for `memory` alone, from the cost file.
  if (limits.memory && !limits.activation_bytes && !limits.weight_bytes) {
    if (problem.costs.memory.empty())
      reject("search: --memory needs --activation-bytes and --weight-bytes, or --costs FILE with `memory`");
    problem.limits.push_back(limit_memory(layout, *limits.memory, problem.costs, "--memory"));
  } else if (const auto memory = limits.limits().memory) {
    problem.limits.push_back(
        limit_memory(layout, memory->bytes, memory->weight_bytes, memory->activation_bytes, "--memory"));
  }
  return problem;
}

struct SearchedPlacements {
  std::vector<SearchProblem> problems;
  std::vector<std::string> names;      // [problem]: name of its placement
  std::vector<PipelineShape> shapes;   // [problem]
  std::optional<Schedule> given = {};  // start of the only problem
};

/// Omits layouts that another placement has, too.
void add_layouts(const SearchRequest& request, const NamedPlacement& placement, SearchedPlacements& searched) {
  const PipelineShape shape = chosen_shape(request.shape, placement);
  const std::vector<SearchLayout> layouts = placement.layouts(shape);
  for (const SearchLayout& layout : layouts) {
    const auto has_layout = [&](const SearchProblem& problem) { return problem.layout.placement == layout.placement; };
    // The placements `wave` with w = 1 and `v` are the same, for example.
    if (std::ranges::any_of(searched.problems, has_layout)) continue;
    searched.problems.push_back(problem_of(request, layout));
    searched.names.emplace_back(placement.name);
    searched.shapes.push_back(shape);
  }
  if (layouts.size() > 1) require_equal_links(searched.problems);
}

/// The schedule says where its stages are; the search changes only the order of ops.
SearchedPlacements around_schedule(const SearchRequest& request) {
  Schedule schedule = request.start.make_valid();
  if (!request.placement.empty()) reject("search: {} has a placement already; leave out --placement", schedule.name);
  return {{problem_of(request, search_layout_of(schedule), has_split_backwards(schedule))},
          {schedule.name},
          {PipelineShape{}},
          std::move(schedule)};
}

/// Throws ConfigError if no placement fits shape and costs.
SearchedPlacements searched_placements(const SearchRequest& request) {
  if (!request.start.name.empty() || !request.start.is_named()) return around_schedule(request);
  SearchedPlacements searched;
  std::string refusal;  // the first
  for (const NamedPlacement& placement : chosen_placements(request)) {
    try {
      add_layouts(request, placement, searched);
    } catch (const ConfigError& error) {
      // A placement that the shape does not fit is left out while another fits.
      if (refusal.empty()) refusal = error.what();
    }
  }
  if (searched.problems.empty()) throw ConfigError(refusal);
  return searched;
}

std::string placement_text(const Schedule& schedule) {
  std::string text;
  for (std::size_t r = 0; r < schedule.placement.num_replicas(); ++r) {
    const auto& row = schedule.placement.worker_of[r];
    text += fmt::format("  replica {}: stages 0 to {} on workers", r, row.size() - 1);
    for (const WorkerId worker : row) text += fmt::format(" {}", worker.value());
    text += "\n";
  }
  return text;
}

}  // namespace

SearchLayout search_layout_of(const Schedule& schedule) {
  if (schedule.updates || schedule.micro_batch_scale != 1)
    reject("search: only synchronous schedules of full micro-batches can be searched");
  if (schedule.groups > 1) reject("search: a schedule of several groups cannot be searched");
  return layout_of(schedule);
}

SearchOptions options_of(const SearchRequest& request, const std::function<void(const SearchProgress&)>& progress) {
  SearchOptions options;
  options.seed = static_cast<std::uint64_t>(request.seed);
  options.iterations = request.iterations;
  // A limit of iterations makes the result reproducible, which a limit of time would undo.
  options.seconds = request.seconds || request.iterations ? request.seconds : std::optional(request.usual_seconds);
  options.progress = progress;
  return options;
}

std::span<const NamedPlacement> named_placements() { return std::span(kPlacements).first(kPlacements.size() - 1); }

void SearchRequest::visit(Door& door) {
  shape.visit(door);
  door.text(
      {"placement",
       "placement of stages: bidirectional (2f replicas of v virtual stages in both directions), rotated (2f replicas "
       "in one direction, shifted by D/2f workers), linear (one stage per worker), loop (v virtual stages as in "
       "interleaved 1F1B), v (down the workers and back), wave (v, w times), or any (all placements; for few workers) "
       "(default: the best of all but any that take the given shape flags)",
       fmt::format("{}", fmt::join(placement_names(), "|"))},
      [this](const std::string& word) { placement = name_for("--placement", word, placement_names()); });
  costs.visit(door);
  door.group("Search");
  door.field({"whole_backward", "do not split backwards into input and weight gradients (default with --backward)"},
             whole_backward);
  door.field({"split_backward"}, split_backward);
  limits.visit(door, "default: no limit");
  door.group("Search");
  door.field({"seconds", "seconds to search (default 10)"}, seconds);
  door.field({"iterations", "number of schedules to try, instead of --seconds or as a second limit", "N", 1},
             iterations);
  door.field({"seed", "random seed (default 0)"}, seed);
}

SearchAnswer answer(const SearchRequest& request, const std::function<void(const SearchProgress&)>& progress) {
  const SearchedPlacements searched = searched_placements(request);
  const auto& problems = searched.problems;
  const SearchOptions options = options_of(request, progress);
  // A given schedule is the only start of its problem. Otherwise generators make the starts of each layout.
  const auto starts = [&](std::size_t i) {
    return searched.given ? std::vector{*searched.given} : generated_starts(problems[i].layout, searched.shapes[i]);
  };
  // One problem gets the whole budget at once; several are searched in rounds that drop the worst.
  const bool is_single = problems.size() == 1;
  auto [result, best] = is_single ? PlacementSearch{search(problems.front(), starts(0), options)}
                                  : search_placements(problems, starts, options);
  SearchAnswer answer{std::move(result), problems[best].costs, searched.names[best], searched.names, {}};
  if (std::ranges::all_of(problems, [](const SearchProblem& problem) { return problem.layout.slices == 1; }))
    answer.notes = request.costs.unused_without_slices();
  return answer;
}

std::string search_text(const SearchAnswer& answer, const TextStyle& style) {
  const SearchResult& result = answer.result;
  std::string text;
  if (num_ops(result.schedule) <= kMaxDrawnOps)
    text = to_text(result.schedule, simulate(result.schedule, answer.costs), style) + "\n";
  text += fmt::format("makespan {:.6g}, lower bound {:.6g}, gap {:.2f} %{}\n", result.makespan, result.lower_bound,
                      100 * result.gap, result.gap == 0 ? " (optimal)" : "");
  text += fmt::format("peak in flight {:.6g} stage units, found by {}\n\n", result.peak_in_flight, result.origin);
  text += fmt::format("{:>10} {:>15}  {}\n", "makespan", "peak in flight", "found by");
  for (const ParetoPoint& point : result.pareto)
    text += fmt::format("{:>10.6g} {:>15.6g}  {}\n", point.makespan, point.peak_in_flight, point.origin);
  if (answer.placement == kAnyPlacement) {
    return text + fmt::format("\n{} searched; the best:\n{}", counted(answer.placements.size(), "placement"),
                              placement_text(result.schedule));
  }
  if (answer.placements.size() == 1) return text + fmt::format("\nplacement {}\n", answer.placement);
  return text + fmt::format("\nplacement {}, the best of {}\n", answer.placement, fmt::join(answer.placements, ", "));
}

std::string search_json(const SearchResult& result, const std::string& placement) {
  std::string text = "{";
  if (!placement.empty()) text += fmt::format("\"placement\": {},\n ", json_text(nlohmann::json(placement)));
  text += fmt::format(
      "\"makespan\": {}, \"lower_bound\": {}, \"gap\": {}, \"optimal\": {},\n"
      " \"peak_in_flight\": {}, \"origin\": {},\n"
      " \"pareto\": [",
      json_number(result.makespan), json_number(result.lower_bound), json_number(result.gap), result.gap == 0,
      json_number(result.peak_in_flight), json_text(nlohmann::json(result.origin)));
  for (const ParetoPoint& point : result.pareto) {
    text += fmt::format("{}{{\"makespan\": {}, \"peak_in_flight\": {}, \"origin\": {}}}",
                        &point == &result.pareto.front() ? "" : ",\n  ", json_number(point.makespan),
                        json_number(point.peak_in_flight), json_text(nlohmann::json(point.origin)));
  }
  // The schedule is text already, in the form of a schedule file.
  return text + "],\n \"schedule\": " + to_json(result.schedule) + "}\n";
}

}  // namespace chimera
