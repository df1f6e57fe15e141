#include "search/search.h"
#include "flags/costs.h"
#include "flags/outputs.h"
#include "flags/shape.h"
#include "flags/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "answers/check_answer.h"
#include "answers/record.h"
#include "commands.h"
#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "help.h"
#include "program.h"
#include "render/text.h"
#include "schedule/schedule_json.h"
#include "search/limits.h"
#include "search/list_scheduling.h"
#include "search/placements.h"
#include "simulate/simulate.h"

namespace chimera::apps {
namespace {

struct SearchArguments {
  std::string name;  // schedule to improve, or its file
  ShapeFlags shape;
  CostFlags costs;
  std::string placement;
  bool whole_backward = false;
  LimitFlags limits;
  double seconds = 10;
  std::int64_t iterations = 0;
  std::int64_t seed = 0;
  Format format = Format::Text;
  std::string output;
  std::string record;  // name or file
  CLI::Option* seconds_option = nullptr;
  CLI::Option* iterations_option = nullptr;
};

constexpr std::int64_t kMaxDrawnOps = 400;

constexpr const char* kAnyPlacement = "any";

/// Returns the parameters of --placement any, which is not a placement itself.
const NamedPlacement& any_placement() {
  static const NamedPlacement placement{kAnyPlacement, PlacementKind::Bidirectional, {Axis::Pipelines, Axis::Chunks}};
  return placement;
}

std::vector<std::string> placement_names() {
  std::vector<std::string> names;
  for (const NamedPlacement& placement : named_placements()) names.emplace_back(placement.name);
  names.emplace_back(kAnyPlacement);
  return names;
}

bool takes(const NamedPlacement& placement, Axis axis) { return axis == Axis::Slices || placement.has_axis(axis); }

/// Without --placement, returns all that accept the given shape flags, or the first if there is none.
std::vector<NamedPlacement> chosen_placements(const SearchArguments& options) {
  if (options.placement == kAnyPlacement) return {any_placement()};
  std::vector<NamedPlacement> chosen;
  for (const NamedPlacement& placement : named_placements()) {
    const auto is_refused = [&](const AxisFlag& flag) { return flag.is_given() && !takes(placement, flag.axis.axis); };
    const bool is_allowed = options.placement.empty() ? std::ranges::none_of(options.shape.axes, is_refused)
                                                      : options.placement == placement.name;
    if (is_allowed) chosen.push_back(placement);
  }
  // The error of the first placement then names the flag that none accepts.
  if (chosen.empty()) chosen.push_back(named_placements().front());
  return chosen;
}

/// Example: `--pipelines and --chunks`.
std::string flags_of(const NamedPlacement& placement) {
  std::vector<std::string> flags;
  for (const Axis axis : placement.axes) flags.push_back(shape_axis(axis).flag());
  return flags.empty() ? "no such flag" : fmt::format("{}", fmt::join(flags, " and "));
}

PipelineShape chosen_shape(const SearchArguments& options, const NamedPlacement& placement) {
  const ShapeFlags& flags = options.shape;
  flags.require_counts("search");
  for (const AxisFlag& flag : flags.axes) {
    if (!flag.is_given() || takes(placement, flag.axis.axis)) continue;
    throw ConfigError(fmt::format("search: {} does not apply to --placement {}, which takes {}", flag.axis.flag(),
                                  placement.name, flags_of(placement)));
  }
  PipelineShape usual;
  usual.chunks = placement.chunks;
  return flags.with_given_flags(usual);
}

/// A backward is whole if only --backward gives its cost.
bool splits_backward(const SearchArguments& options) {
  return !options.whole_backward && !options.costs.is_given(&CostFlags::backward);
}

SearchProblem problem_of(const SearchArguments& options, const SearchLayout& layout, bool splits) {
  SearchProblem problem{layout, options.costs.costs_of(without_ops(layout)), splits, {}};
  if (const auto units = options.limits.in_flight()) {
    problem.limits.push_back(limit_in_flight(layout, *units, "--max-in-flight"));
  }
  // Bytes of stages come from the flags or, for --memory alone, from the cost file.
  if (const auto bytes = options.limits.memory_without_sizes()) {
    if (problem.costs.memory.empty()) {
      throw ConfigError("search: --memory needs --activation-bytes and --weight-bytes, or --costs FILE with `memory`");
    }
    problem.limits.push_back(limit_memory(layout, *bytes, problem.costs, "--memory"));
  } else if (const auto memory = options.limits.limits().memory) {
    problem.limits.push_back(
        limit_memory(layout, memory->bytes, memory->weight_bytes, memory->activation_bytes, "--memory"));
  }
  return problem;
}

SearchOptions search_options(const SearchArguments& options) {
  SearchOptions chosen;
  if (options.seed < 0) throw ConfigError(fmt::format("--seed: {} is not 0 or more", options.seed));
  if (options.iterations_option->count() > 0 && options.iterations < 1) {
    throw ConfigError(fmt::format("--iterations: {} is not 1 or more", options.iterations));
  }
  chosen.seed = static_cast<std::uint64_t>(options.seed);
  chosen.seconds = options.seconds;
  // A limit of iterations makes the result reproducible, which a limit of time would undo.
  if (options.iterations_option->count() > 0) {
    chosen.iterations = options.iterations;
    if (options.seconds_option->count() == 0) chosen.seconds.reset();
  }
  constexpr double kSecondsBetween = 5;  // progress lines
  chosen.progress = [next = kSecondsBetween](const SearchProgress& now) mutable {
    if (now.seconds < next) return;
    next = now.seconds + kSecondsBetween;
    messages().write(fmt::format("search: {:.0f} s, makespan {:.6g} by {}, lower bound {:.6g}\n", now.seconds,
                                 now.makespan, now.origin, now.lower_bound));
  };
  return chosen;
}

std::string as_text(const SearchResult& result, const CostModel& costs) {
  std::string text;
  if (num_ops(result.schedule) <= kMaxDrawnOps) {
    text = to_text(result.schedule, simulate(result.schedule, costs)) + "\n";
  }
  text += fmt::format("makespan {:.6g}, lower bound {:.6g}, gap {:.2f} %{}\n", result.makespan, result.lower_bound,
                      100 * result.gap, result.gap == 0 ? " (optimal)" : "");
  text += fmt::format("peak in flight {:.6g} stage units, found by {}\n\n", result.peak_in_flight, result.origin);
  text += fmt::format("{:>10} {:>15}  {}\n", "makespan", "peak in flight", "found by");
  for (const ParetoPoint& point : result.pareto) {
    text += fmt::format("{:>10.6g} {:>15.6g}  {}\n", point.makespan, point.peak_in_flight, point.origin);
  }
  return text;
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

struct SearchedPlacements {
  std::vector<SearchProblem> problems;
  std::vector<std::string> names;      // [problem]: name of its placement
  std::vector<PipelineShape> shapes;   // [problem]
  std::optional<Schedule> given = {};  // start of the only problem
};

/// Omits layouts that another placement has, too.
void add_layouts(const SearchArguments& options, const NamedPlacement& placement, SearchedPlacements& searched) {
  const PipelineShape shape = chosen_shape(options, placement);
  const bool any = placement.name == any_placement().name;
  for (const SearchLayout& layout : any ? all_layouts(shape) : std::vector{make_search_layout(placement.kind, shape)}) {
    const auto has_layout = [&](const SearchProblem& problem) { return problem.layout.placement == layout.placement; };
    // The placements `wave` with w = 1 and `v` are the same, for example.
    if (std::ranges::any_of(searched.problems, has_layout)) continue;
    searched.problems.push_back(problem_of(options, layout, splits_backward(options)));
    searched.names.emplace_back(placement.name);
    searched.shapes.push_back(shape);
  }
  if (any && searched.problems.size() > 1) require_equal_links(searched.problems);
}

SearchedPlacements around_schedule(const SearchArguments& options) {
  if (!options.placement.empty())
    throw ConfigError(fmt::format("search: {} has a placement already; leave out --placement", options.name));
  // The schedule says where its stages are; the search changes only the order of ops.
  const bool is_file = names_schedule_file(options.name);
  if (is_file) require_no_shape(options.shape, "search: " + options.name);
  Schedule schedule = is_file ? read_schedule(options.name) : options.shape.generate(options.name);
  const bool splits = splits_backward(options) && has_split_backwards(schedule);
  return {{problem_of(options, search_layout_of(schedule), splits)},
          {schedule.name},
          {PipelineShape{}},
          std::move(schedule)};
}

/// Throws ConfigError if no placement fits shape and costs.
SearchedPlacements searched_placements(const SearchArguments& options) {
  if (!options.name.empty()) return around_schedule(options);
  SearchedPlacements searched;
  std::string refusal;  // the first
  for (const NamedPlacement& placement : chosen_placements(options)) {
    try {
      add_layouts(options, placement, searched);
    } catch (const ConfigError& error) {
      // A placement that the shape does not fit is left out while another fits.
      if (refusal.empty()) refusal = error.what();
    }
  }
  if (searched.problems.empty()) throw ConfigError(refusal);
  return searched;
}

std::string print_search(const SearchArguments& options) {
  const SearchedPlacements searched = searched_placements(options);
  const auto& problems = searched.problems;
  options.costs.warn_without_slices(
      std::ranges::any_of(problems, [](const SearchProblem& problem) { return problem.layout.slices > 1; }));
  // A given schedule is the only start of its problem. Otherwise generators make the starts of each layout.
  const auto starts = [&](std::size_t i) {
    return searched.given ? std::vector{*searched.given} : generated_starts(problems[i].layout, searched.shapes[i]);
  };
  const auto [result, best] = search_placements(problems, starts, search_options(options));
  const std::string& name = searched.names[best];
  // The file is written first: a closed pipe then loses only the report.
  if (!options.output.empty()) write_output(options.output, to_json(result.schedule));
  if (options.format == Format::Json) return search_json(result, name);
  std::string text = as_text(result, problems[best].costs);
  if (name == kAnyPlacement) {
    text += fmt::format("\n{} placements searched; the best:\n{}", problems.size(), placement_text(result.schedule));
  } else if (problems.size() > 1) {
    text += fmt::format("\nplacement {}, the best of {}\n", name, fmt::join(searched.names, ", "));
  } else {
    text += fmt::format("\nplacement {}\n", name);
  }
  return text;
}

/// Refuses flags that would change the problem of a record.
void require_only_search_flags(const CLI::App& command) {
  const std::vector<std::string> allowed = {"--record", "--seconds", "--iterations", "--seed",
                                            "--format", "--output",  "--overwrite"};
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::ranges::count(allowed, name) > 0) continue;
    throw ConfigError(fmt::format("search: --record has its own problem; leave out {}", name));
  }
}

/// Searches from the record's schedule and all generated ones. Returns the exit code: 0 if the result beats the record.
int try_record(const CLI::App& command, const SearchArguments& options) {
  require_only_search_flags(command);
  const std::string file = record_file(options.record);
  const Record record = record_from_json(read_whole(file), file);
  SearchOptions chosen = search_options(options);
  chosen.wants_front = false;
  const SearchResult result = search(record.problem, {record.schedule}, chosen);
  const bool beats = result.makespan < record.makespan * (1 - kRounding);
  if (!options.output.empty()) write_output(options.output, to_json(result.schedule));
  if (options.format == Format::Json) {
    write_output("", search_json(result, record.placement));
  } else {
    const std::string verdict = beats ? "The search beats the record."
                                : record.makespan <= result.lower_bound * (1 + kRounding)
                                    ? "Nobody can beat the record: it equals the bound."
                                    : "The search does not beat the record.";
    write_output("", fmt::format("{}: makespan {:.6g}, lower bound {:.6g}\n{}{}\n", record.name, record.makespan,
                                 record.lower_bound, as_text(result, record.problem.costs), verdict));
  }
  return beats ? 0 : 1;
}

}  // namespace

void add_search(CLI::App& program, int& exit_code) {
  auto* command = program.add_subcommand("search", "Search for a fast schedule under a memory limit");
  command->footer(
      "Examples:\n"
      "  chimera search --stages 8 --micro-batches 16 --forward 1 --input-gradient 1.3 --weight-gradient 0.7 "
      "--max-in-flight 9\n"
      "  chimera search --stages 4 --micro-batches 8 --placement wave --waves 2 --iterations 100000 --seed 1\n"
      "  chimera search --stages 4 --micro-batches 4 --output found.json\n"
      "  chimera search mine.json --latency 0.1\n"
      "  chimera search --record gpt-d8-n32 --seconds 60\n"
      "\nLocal search improves the best generated and list-scheduled schedules; small problems are solved to proven "
      "optimality. The gap is makespan / lower bound - 1. With --iterations and without --seconds the result depends "
      "only on --seed.\n"
      "\nMore: docs/search.md");
  auto options = std::make_shared<SearchArguments>();
  complete_names(command->add_option("NAME", options->name,
                                     "schedule to improve on its own placement: a name, or a JSON or CSV file "
                                     "(default: the best placement)"),
                 schedule_names());
  options->shape.add_to(*command);
  add_word(
      *command, "--placement", placement_names(),
      [&placement = options->placement](const std::string& word) { placement = word; },
      "placement of stages: bidirectional (2f replicas of v virtual stages in both directions), rotated (2f replicas "
      "in one direction, shifted by D/2f workers), linear (one stage per worker), loop (v virtual stages as in "
      "interleaved 1F1B), v (down the workers and back), wave (v, w times), or any (all placements; for few workers) "
      "(default: the best of all but any that take the given shape flags)");
  options->costs.add_to(*command);
  begin_group(*command, heading::kSearch);
  command->add_flag("--whole-backward", options->whole_backward,
                    "do not split backwards into input and weight gradients (default with --backward)");
  options->limits.add_to(*command, "default: no limit");
  begin_group(*command, heading::kSearch);
  options->seconds_option = add_number(*command, "--seconds", options->seconds, "seconds to search (default 10)");
  options->iterations_option = add_count(*command, "--iterations", options->iterations,
                                         "number of schedules to try, instead of --seconds or as a second limit");
  add_count(*command, "--seed", options->seed, "random seed (default 0)");
  command->add_option(
      "--record", options->record,
      "try to beat a record instead: a name in benchmarks/records, or a file; exit code 1 if not beaten");
  begin_group(*command, heading::kOutput);
  add_format(*command, options->format, {Format::Text, Format::Json});
  add_output_checks(*command,
                    {add_path(*command, "--output", options->output,
                              "also write the best schedule to this JSON file, which other commands take as NAME")});
  set_common_flags(*command, {"--stages", "--micro-batches", "--placement", "--forward", "--backward",
                              "--input-gradient", "--weight-gradient", "--latency", "--costs", "--max-in-flight",
                              "--seconds", "--iterations", "--seed", "--format", "--output"});
  command->callback([options, command, &exit_code] {
    if (!options->record.empty())
      exit_code = try_record(*command, *options);
    else
      write_output("", print_search(*options));
  });
}

}  // namespace chimera::apps
