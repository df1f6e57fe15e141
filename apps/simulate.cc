#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "check/check_schedule.h"
#include "commands.h"
#include "core/error.h"
#include "options.h"
#include "render/text.h"
#include "render/timeline_json.h"
#include "schedule_file.h"

namespace chimera::apps {
namespace {

struct Options {
  std::string name;
  std::string file;
  ShapeFlags shape;
  CostFlags costs;
  std::string format;
};

Schedule read_schedule(const std::string& file) {
  Schedule schedule = load_schedule(file);
  const auto violations = check(schedule);
  if (!violations.empty()) {
    throw ScheduleError(fmt::format("{}: {}; `chimera check {}` lists all", file, violations.front().message, file));
  }
  return schedule;
}

Schedule chosen_schedule(const Options& options) {
  if (options.name.empty() == options.file.empty())
    throw ConfigError("simulate: give the NAME of a schedule, or --file FILE");
  if (options.file.empty()) return options.shape.generate(options.name);
  if (options.shape.given()) {
    throw ConfigError(
        "simulate: --file has a shape already; leave out --stages, --micro-batches and the other shape flags");
  }
  return read_schedule(options.file);
}

std::string as_text(const Schedule& schedule, const Timeline& timeline) {
  std::string text = to_text(schedule, timeline);
  text += fmt::format("\nmakespan {:.6g}, bubble ratio {:.4f}, lower bound {:.6g}\n", timeline.makespan,
                      timeline.bubble_ratio, timeline.lower_bound);
  text += fmt::format("{:>6} {:>10} {:>10} {:>15}\n", "worker", "busy", "idle", "peak in flight");
  for (std::size_t w = 0; w < timeline.workers.size(); ++w) {
    const WorkerTimeline& worker = timeline.workers[w];
    text += fmt::format("{:>6} {:>10.6g} {:>10.6g} {:>15}\n", w, worker.busy, worker.idle, worker.peak_in_flight);
  }
  return text;
}

}  // namespace

void add_simulate(CLI::App& program, int&) {
  auto* command = program.add_subcommand("simulate", "Time a schedule: makespan, bubbles, activations in flight");
  command->footer(
      "Examples:\n"
      "  chimera simulate chimera --stages 8 --micro-batches 8 --forward 1 --backward 2\n"
      "  chimera simulate 1f1b --stages 4 --micro-batches 8 --latency 0.1 --format json\n"
      "  chimera simulate --file schedule.json\n"
      "\nOps run in their worker's order as soon as their inputs have arrived. Times are those of one worker's\n"
      "whole share of the model, in any unit.");
  auto options = std::make_shared<Options>();
  command->add_option("NAME", options->name, "name of the schedule; `chimera schedules` lists them");
  add_path(*command, "--file", options->file, "schedule in JSON or CSV instead; - reads standard input");
  options->shape.add_to(*command);
  options->costs.add_to(*command);
  add_format(*command, options->format, {"text", "json"});
  command->callback([options] {
    const Schedule schedule = chosen_schedule(*options);
    const Timeline timeline = simulate(schedule, options->costs.costs_of(schedule));
    if (!std::isfinite(timeline.makespan)) {
      throw ConfigError("simulate: the makespan is too large for a number; use a larger unit of time");
    }
    write_output("", options->format == "json" ? to_json(schedule, timeline) : as_text(schedule, timeline));
  });
}

}  // namespace chimera::apps
