#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "check/check_limits.h"
#include "commands.h"
#include "core/error.h"
#include "flags/costs.h"
#include "flags/lost.h"
#include "flags/outputs.h"
#include "flags/shape.h"
#include "flags/values.h"
#include "help.h"
#include "passes/unroll.h"
#include "pictures.h"
#include "render/timeline_json.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "simulate/summary.h"

namespace chimera::apps {
namespace {

struct SimulateArguments {
  std::string name;
  std::string file;
  ShapeFlags shape;
  CostFlags costs;
  PairFlags pairs;
  LostFlags lost;
  PictureFlags pictures;
  std::int64_t steps = 1;
  std::int64_t cores = 1;
  CLI::Option* cores_option = nullptr;
  std::vector<double> contention;  // empty, or as in Contention
  LimitFlags limits;
  Format format = Format::Text;
  std::string output;
};

Timeline timeline_of(const Schedule& schedule, const CostModel& costs, const SimulateArguments& options) {
  SharedCores shared;
  if (options.cores_option->count() > 0) {
    if (options.cores < 1) throw ConfigError(fmt::format("--cores: {} is not 1 or more", options.cores));
    // The simulation has one of W equal groups, which gets its part of the cores.
    shared.cores = static_cast<double>(options.cores) / static_cast<double>(options.costs.data_parallel);
  }
  if (!options.contention.empty()) {
    shared.contention = {
        .ops_by_sums = options.contention[0], .sums_by_ops = options.contention[1], .transfers = options.contention[2]};
  }
  return simulate(schedule, costs, {.steps = options.steps, .cores = shared});
}

CostModel costs_of(const Schedule& schedule, const SimulateArguments& options) {
  return options.pairs.with_time(options.costs.costs_of(schedule));
}

Schedule all_steps(const Schedule& step, const SimulateArguments& options) {
  return options.steps == 1 ? step : unroll(step, options.steps);
}

/// Returns infinity if the schedule exceeds the limits.
double makespan_of(const Schedule& step, const SimulateArguments& options) {
  // fastest() then prefers an order within the limits. require_limit() reports that no order is.
  if (!check_limits(step, options.limits.limits()).empty()) return std::numeric_limits<double>::infinity();
  const Schedule schedule = all_steps(step, options);
  return timeline_of(schedule, costs_of(schedule, options), options).makespan;
}

Schedule chosen_schedule(const SimulateArguments& options, const MakeSchedule& make) {
  if (options.name.empty() == options.file.empty())
    throw ConfigError("simulate: give the NAME of a schedule, or --file FILE");
  // --file reads a schedule of any name; NAME is a file only if it looks like one.
  const bool is_named = options.file.empty();
  if (is_named && !names_schedule_file(options.name))
    return options.shape.generate(options.name, options.pictures.with, make);
  require_no_shape(options.shape, "simulate: " + (is_named ? options.name : "--file"));
  return options.pairs.apply_to(read_schedule(is_named ? options.name : options.file));
}

Panel simulate_panel(const Schedule& step, const SimulateArguments& options) {
  const Schedule schedule = all_steps(step, options);
  const CostModel costs = costs_of(schedule, options);
  Timeline timeline = timeline_of(schedule, costs, options);
  // Sums of times up to 1e100 stay finite for any usual number of ops.
  if (!std::isfinite(timeline.makespan)) {
    throw ConfigError("simulate: the makespan is too large for a number; use a larger unit of time");
  }
  return panel_of(schedule, std::move(timeline), costs);
}

std::string workers_as_text(const Panel& panel) {
  const auto& [timeline, explanation, in_bytes] = std::tie(panel.timeline, panel.explanation, panel.memory_in_bytes);
  std::string text = fmt::format("{:>6} {:>10} {:>10} {:>10} {:>15} {:>15} {:>15}{}\n", "worker", "busy", "idle",
                                 "inner idle", "peak in flight", "in stage units", "weight versions",
                                 in_bytes ? fmt::format(" {:>12}", "peak bytes") : "");
  for (std::size_t w = 0; w < timeline.workers.size(); ++w) {
    const WorkerTimeline& worker = timeline.workers[w];
    const double in_flight = micro_batches_in_flight(panel.schedule, worker);
    if (worker.lost) {
      text += fmt::format("{:>6} {:>10}\n", w, "lost");
      continue;
    }
    text += fmt::format("{:>6} {:>10.6g} {:>10.6g} {:>10.6g} {:>15} {:>15.6g} {:>15}", w, worker.busy, worker.idle,
                        worker.inner_idle, in_flight, worker.peak_stage_units, worker.peak_weight_versions);
    if (in_bytes) text += fmt::format(" {:>12.6g}", peak_memory(explanation, w));
    text += "\n";
  }
  return text;
}

std::string causes_as_text(const Timeline& timeline, const Explanation& explanation) {
  const auto idle = idle_by_cause(explanation.bubbles);
  const auto survivors = std::ranges::count(timeline.workers, false, &WorkerTimeline::lost);
  const double area = timeline.makespan * static_cast<double>(survivors);
  std::string text = "idle time of all workers, by cause\n";
  for (int c = 0; c < kIdleCauses; ++c) {
    const double time = idle[static_cast<std::size_t>(c)];
    text += fmt::format("{:>12} {:>10.6g} {:>6.1f} %\n", to_text(static_cast<IdleCause>(c)), time,
                        area > 0 ? 100 * time / area : 0);
  }
  return text;
}

std::string critical_path_as_text(const Panel& panel) {
  const auto& path = panel.explanation.critical_path;
  if (path.empty()) return "critical path: no op\n";
  const auto op = [&](const Place& place) { return panel.schedule.workers[place.worker][place.position]; };
  const auto time = [&](const Place& place) { return panel.timeline.workers[place.worker].ops[place.position]; };
  std::array<int, kOpKinds> counts{};
  double in_ops = 0;
  for (const Place& place : path) {
    ++counts[static_cast<std::size_t>(op(place).kind)];
    in_ops += time(place).end - time(place).start;
  }
  std::vector<std::string> kinds;
  for (int k = 0; k < kOpKinds; ++k) {
    const int count = counts[static_cast<std::size_t>(k)];
    if (count > 0) kinds.push_back(fmt::format("{} {}", count, letter(static_cast<OpKind>(k))));
  }
  // The path ends at the last op; all-reduces and updates may follow it.
  const double after = panel.timeline.makespan - time(path.back()).end;
  // Rounding may make the difference of sums slightly negative.
  const double between = std::max(0.0, panel.timeline.makespan - after - in_ops);
  return fmt::format(
      "critical path: {:.6g} in {}, {:.6g} between them, {:.6g} after them; {} on worker {} to {} on {}\n", in_ops,
      fmt::join(kinds, " and "), between, after, to_text(op(path.front()), panel.schedule.slices), path.front().worker,
      to_text(op(path.back()), panel.schedule.slices), path.back().worker);
}

std::string steps_as_text(const Timeline& timeline) {
  if (timeline.step_ends.size() < 2) return "";
  constexpr std::size_t kMax = 8;
  std::string text = fmt::format("{} steps, one every {:.6g}; they end at", timeline.step_ends.size(), timeline.period);
  for (std::size_t k = 0; k < std::min(kMax, timeline.step_ends.size()); ++k)
    text += fmt::format(" {:.6g}", timeline.step_ends[k]);
  return text + (timeline.step_ends.size() > kMax ? " ...\n" : "\n");
}

std::string as_text(const Panel& panel, const TextStyle& style) {
  const Timeline& timeline = panel.timeline;
  std::string text = to_text(panel.schedule, timeline, style);
  text += fmt::format("\nmakespan {:.6g}, bubble ratio {:.4f}, lower bound {:.6g}\n", timeline.makespan,
                      timeline.bubble_ratio, timeline.lower_bound);
  text += fmt::format("inner bubble {:.6g}, makespan bubble {:.6g}\n", timeline.inner_bubble, timeline.makespan_bubble);
  if (timeline.makespan > timeline.ops_end) {
    text += fmt::format("all-reduces and updates add {:.6g} after the last op\n", timeline.makespan - timeline.ops_end);
  }
  text += steps_as_text(timeline) + critical_path_as_text(panel);
  text += workers_as_text(panel);
  return text + causes_as_text(timeline, panel.explanation);
}

std::string as_text(const std::vector<Panel>& panels, const TextStyle& style) {
  if (panels.size() == 1) return as_text(panels.front(), style);
  std::string text;
  for (const Panel& panel : panels) text += panel.title + "\n" + as_text(panel, style) + "\n";
  return text + comparison_table(panels);
}

void require_limit(const SimulateArguments& options, const Panel& panel) {
  const auto violations = check_limits(panel.schedule, options.limits.limits());
  if (violations.empty()) return;
  const bool in_flight = violations.front().kind == ViolationKind::OverInFlight;
  throw ConfigError(fmt::format("{}: {}", in_flight ? "--max-in-flight" : "--memory", violations.front().message));
}

std::string simulate_all(SimulateArguments options) {
  // A schedule without lost workers contains all groups.
  const std::int64_t groups = options.lost.is_given() ? std::exchange(options.costs.data_parallel, 1) : 1;
  if (options.steps < 1) throw ConfigError(fmt::format("--steps: {} is not 1 or more", options.steps));
  const MakeSchedule make =
      fastest(options.shape, options.pairs, [&](const Schedule& step) { return makespan_of(step, options); });
  const Schedule healthy = chosen_schedule(options, make);
  std::string summary;
  const Schedule schedule = options.lost.apply_to(healthy, groups, summary);
  std::vector<Panel> panels = {simulate_panel(schedule, options)};
  for (const Schedule& other : options.pictures.further_schedules(healthy, options.shape, make)) {
    panels.push_back(simulate_panel(other, options));
  }
  const Panel& first = panels.front();
  require_limit(options, first);
  options.costs.warn_without_slices(
      std::ranges::any_of(panels, [](const Panel& panel) { return panel.schedule.slices > 1; }));
  options.pairs.warn_without_pairs(
      std::ranges::any_of(panels, [](const Panel& panel) { return has_pairs(panel.schedule); }));
  if (options.format == Format::Json) return to_json(first.schedule, first.timeline, first.explanation);
  if (options.format == Format::Text) return as_text(panels, options.pictures.text_style(options.output)) + summary;
  return draw_panels(options.format, panels);
}

}  // namespace

void add_simulate(CLI::App& program, int&) {
  auto* command = program.add_subcommand("simulate", "Simulate a schedule: makespan, bubbles, activations in flight");
  command->footer(
      "Examples:\n"
      "  chimera simulate chimera --stages 8 --micro-batches 8 --forward 1 --backward 2\n"
      "  chimera simulate 1f1b --stages 4 --micro-batches 8 --latency 0.1 --format json\n"
      "  chimera simulate schedule.json --with chimera --output page.html\n"
      "  chimera simulate chimera --stages 4 --micro-batches 4 --costs costs.json --sync eager --steps 3\n"
      "  chimera simulate chimera --stages 4 --micro-batches 4 --cores 2   # four processes on two cores\n"
      "  chimera simulate chimera-zb --stages 8 --micro-batches 16 --without 3   # after the loss of worker 3\n"
      "\nEach worker runs its ops in order, each as soon as its inputs have arrived. Times are those of one worker's "
      "whole share of the model. With --cores, k busy workers each run at the rate min(1, cores / k). "
      "If a schedule has two orders and --order is not given, the order that ends first is timed. `chimera sweep` "
      "ranks "
      "schedules, for lists of shapes and times.\n"
      "\nMore: docs/schedules.md");
  auto options = std::make_shared<SimulateArguments>();
  complete_names(
      command->add_option("NAME", options->name, "name (`chimera schedules` lists all), or a JSON or CSV file"),
      schedule_names());
  begin_group(*command, heading::kSchedule);
  add_path(*command, "--file", options->file, "the same as NAME, for a file of any name");
  options->shape.add_to(*command);
  options->pairs.add_to(*command);
  options->lost.add_to(*command);
  options->costs.add_to(*command);
  options->pairs.add_time_to(*command);
  add_count(*command, "--steps", options->steps,
            "number of consecutive training steps; asynchronous schedules do not flush between them (default 1)");
  options->cores_option = add_count(*command, "--cores", options->cores,
                                    "cores that all workers share (default: each worker has its own core)");
  command
      ->add_option(
          "--contention", options->contention,
          "slowdown when work overlaps on a worker: of an op during an all-reduce; of an all-reduce during an op; of a "
          "message or all-reduce per other concurrent transfer (1: they divide the bandwidth) (default: 0 0 0)")
      ->expected(3)
      ->type_name("OPS SUMS TRANSFERS");
  options->limits.add_to(*command, "schedules above the limit are rejected (default: no limit)");
  begin_group(*command, heading::kOutput);
  options->pictures.add_to(*command);
  add_format_and_output(*command, options->format,
                        {Format::Text, Format::Json, Format::Svg, Format::Html, Format::Perfetto}, options->output);
  set_common_flags(*command, {"--file", "--stages", "--micro-batches", "--pipelines", "--chunks", "--forward",
                              "--backward", "--latency", "--costs", "--with", "--format", "--output"});
  command->callback([options] {
    options->costs.shared_cores = options->cores_option->count() > 0;
    options->pictures.check_format(options->format);
    write_output(options->output, simulate_all(*options));
  });
}

}  // namespace chimera::apps
