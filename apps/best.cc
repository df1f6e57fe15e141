#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "check/check_limits.h"
#include "commands.h"
#include "core/error.h"
#include "core/json.h"
#include "generate/registry.h"
#include "help.h"
#include "limit_flags.h"
#include "options.h"
#include "pair_flags.h"
#include "render/panel.h"
#include "simulate/simulate.h"

namespace chimera::apps {
namespace {

struct BestArguments {
  ShapeFlags shape;
  CostFlags costs;
  PairFlags pairs;
  LimitFlags limits;
  Format format = Format::Text;
};

struct RankedSchedule {
  std::string name;
  std::string parameters;  // flags that differ from the defaults, such as `--chunks 2`
  double makespan = 0;
  double bubble_ratio = 0;
  double activations = 0;  // maximum on a worker, in stage units
  double weight_copies = 0;
  double gap = 0;  // makespan / lower bound of its placement - 1

  [[nodiscard]] auto order() const { return std::tuple(makespan, activations, weight_copies); }
};

struct LeftOutSchedule {
  std::string name;
  std::string reason;
};

struct Ranking {
  std::vector<RankedSchedule> ranked;  // fastest first
  std::vector<LeftOutSchedule> left_out;
};

std::vector<PipelineShape> shapes_to_try(const Generator& generator, const ShapeFlags& flags) {
  std::vector<PipelineShape> shapes = {default_shape(generator, flags.shape.stages, flags.shape.micro_batches)};
  for (const AxisFlag& flag : flags.axes) {
    const TakenAxis* taken = find_axis(generator, flag.axis.axis);
    if (taken == nullptr) continue;
    std::vector<PipelineShape> varied;
    for (const PipelineShape& shape : shapes) {
      for (const std::int64_t value : flag.given() ? flag.values : taken->planned(shape))
        flag.axis.set(varied.emplace_back(shape), value);
    }
    shapes = std::move(varied);
  }
  return shapes;
}

std::string changed_parameters(const Generator& generator, const PipelineShape& shape) {
  std::string text;
  for (const TakenAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (axis.get(shape) == taken.usual) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", axis.flag(), axis.text(shape));
  }
  return text;
}

/// Returns nothing if the schedule exceeds the limits.
std::optional<RankedSchedule> timed_schedule(const Generator& generator, const PipelineShape& shape,
                                             const BestArguments& options) {
  const Schedule schedule = generator.generate(shape);
  if (!check_limits(schedule, options.limits.limits()).empty()) return std::nullopt;
  const CostModel costs = options.pairs.with_time(options.costs.costs_of(schedule));
  const Panel panel = panel_of(schedule, simulate(schedule, costs), costs);
  const Timeline& timeline = panel.timeline;
  const double bound = timeline.lower_bound;
  return RankedSchedule{.name = generator.name,
                        .parameters = changed_parameters(generator, shape),
                        .makespan = timeline.makespan,
                        .bubble_ratio = timeline.bubble_ratio,
                        .activations = panel.totals.peak_units,
                        .weight_copies = panel.totals.weight_copies,
                        .gap = bound > 0 ? timeline.makespan / bound - 1 : 0};
}

void add_ranked(const Generator& generator, const BestArguments& options, Ranking& ranking) {
  std::optional<RankedSchedule> best;
  std::string reason;
  for (const PipelineShape& shape : shapes_to_try(generator, options.shape)) {
    if (const auto refusal = generator.refusal(shape)) {
      if (reason.empty()) reason = *refusal;
      continue;
    }
    try {
      const auto timed = timed_schedule(generator, shape, options);
      if (!timed) reason = "holds more than " + options.limits.in_words();
      if (timed && (!best || timed->order() < best->order())) best = timed;
    } catch (const ConfigError& error) {  // costs of another number of stages
      reason = error.what();
    }
  }
  if (best) return ranking.ranked.push_back(*std::move(best));
  ranking.left_out.push_back({generator.name, reason});
}

Ranking ranking_of(const BestArguments& options) {
  const ShapeFlags& flags = options.shape;
  if (flags.stages->count() == 0) throw ConfigError("best: --stages is missing; give D, the workers of one pipeline");
  if (flags.micro_batches->count() == 0)
    throw ConfigError("best: --micro-batches is missing; give N, the micro-batches of one step");
  for (const auto& [flag, value] :
       {std::pair("--stages", flags.shape.stages), std::pair("--micro-batches", flags.shape.micro_batches)}) {
    if (value < 1) throw ConfigError(fmt::format("{} must be at least 1, not {}", flag, value));
  }
  Ranking ranking;
  for (const Generator& generator : generators()) {
    if (generator.synchronous) {
      add_ranked(generator, options, ranking);
    } else {
      ranking.left_out.push_back({generator.name, "updates weights without a flush"});
    }
  }
  if (ranking.ranked.empty()) {
    const LeftOutSchedule& first = ranking.left_out.front();
    throw ConfigError(fmt::format("best: no schedule is left; {}: {}", first.name, first.reason));
  }
  std::ranges::stable_sort(ranking.ranked, {}, &RankedSchedule::order);
  return ranking;
}

std::string three_digits(double value) {
  constexpr double kLargest = 1000;  // from here on, as a whole number
  return value >= kLargest ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string table_text(const std::vector<RankedSchedule>& ranked) {
  using Row = std::array<std::string, 7>;
  std::vector<Row> rows = {{"schedule", "parameters", "makespan", "bubble", "activations", "weights", "gap"}};
  for (const RankedSchedule& each : ranked) {
    rows.push_back({each.name, each.parameters, three_digits(each.makespan), three_digits(each.bubble_ratio),
                    three_digits(each.activations), three_digits(each.weight_copies),
                    fmt::format("{:.3g} %", 100 * std::max(0.0, each.gap))});
  }
  Row widest;
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widest[c].resize(std::max(widest[c].size(), row[c].size()), ' ');
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}", row[0], widest[0].size(), row[1], widest[1].size());
    for (std::size_t c = 2; c < row.size(); ++c) text += fmt::format("  {:>{}}", row[c], widest[c].size());
    text += "\n";
  }
  return text;
}

std::string ranking_text(const Ranking& ranking, const PipelineShape& shape) {
  std::string text = table_text(ranking.ranked);
  text +=
      "\nbubble: idle share of all workers; activations: most on a worker, in stage units; weights: copies of a "
      "worker's\nshare; gap: to the lower bound of the schedule's placement\n\n";
  for (const LeftOutSchedule& each : ranking.left_out) text += fmt::format("left out {}: {}\n", each.name, each.reason);
  const RankedSchedule& best = ranking.ranked.front();
  const std::string flags = fmt::format("--stages {} --micro-batches {}{}{}", shape.stages, shape.micro_batches,
                                        best.parameters.empty() ? "" : " ", best.parameters);
  return text + fmt::format(
                    "\nwith the same flags for costs, draw the best: chimera simulate {0} {1}\n"
                    "look for a faster order of ops: chimera search --stages {2} --micro-batches {3}\n"
                    "train with it: chimera train --schedule {0} {1} --data FILE\n",
                    best.name, flags, shape.stages, shape.micro_batches);
}

std::string ranking_json(const Ranking& ranking) {
  nlohmann::ordered_json json = {{"schedules", nlohmann::ordered_json::array()},
                                 {"left_out", nlohmann::ordered_json::array()}};
  for (const RankedSchedule& each : ranking.ranked) {
    json["schedules"].push_back({{"schedule", each.name},
                                 {"parameters", each.parameters},
                                 {"makespan", each.makespan},
                                 {"bubble_ratio", each.bubble_ratio},
                                 {"peak_stage_units", each.activations},
                                 {"weight_copies", each.weight_copies},
                                 {"gap", each.gap}});
  }
  for (const LeftOutSchedule& each : ranking.left_out)
    json["left_out"].push_back({{"schedule", each.name}, {"reason", each.reason}});
  return json_text(json, 2) + "\n";
}

}  // namespace

void add_best(CLI::App& program, int&) {
  auto* command = program.add_subcommand("best", "Rank all schedules for given costs and limits");
  command->footer(
      "Examples:\n"
      "  chimera best --stages 8 --micro-batches 16\n"
      "  chimera best --stages 8 --micro-batches 16 --input-gradient 1.3 --weight-gradient 0.7 --max-in-flight 9\n"
      "  chimera best --stages 4 --micro-batches 8 --costs costs.json --format json\n"
      "\nSimulates every synchronous schedule with every useful value of the parameters that no flag gives, and prints "
      "each schedule once, with its best parameters, the fastest first. `chimera plan` also chooses the number of "
      "stages, for a model and a machine.\n"
      "\nMore: docs/schedules.md, docs/search.md");
  auto options = std::make_shared<BestArguments>();
  options->shape.add_to(*command);
  options->costs.add_to(*command);
  options->pairs.add_time_to(*command);
  options->limits.add_to(*command, "schedules above the limit are left out (default: no limit)");
  begin_group(*command, heading::kOutput);
  add_format(*command, options->format, {Format::Text, Format::Json});
  set_common_flags(*command, {"--stages", "--micro-batches", "--forward", "--backward", "--input-gradient",
                              "--weight-gradient", "--latency", "--costs", "--max-in-flight", "--memory",
                              "--activation-bytes", "--weight-bytes", "--format"});
  command->callback([options] {
    const Ranking ranking = ranking_of(*options);
    options->costs.report_without_slices(std::ranges::any_of(options->shape.axes, [](const AxisFlag& flag) {
      return flag.axis.axis == Axis::Slices && flag.given() && flag.values.front() > 1;
    }));
    write_output("",
                 options->format == Format::Json ? ranking_json(ranking) : ranking_text(ranking, options->shape.shape));
  });
}

}  // namespace chimera::apps
