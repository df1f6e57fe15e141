#include <memory>

#include "answers/simulate_answer.h"
#include "commands.h"
#include "core/reject.h"
#include "flags/files.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "pictures.h"

namespace chimera::apps {
namespace {

struct SimulateArguments : RequestArguments<SimulateRequest> {
  ColorChoice color = ColorChoice::Auto;
};

std::string print_simulation(const SimulateArguments& options) {
  const ScheduleRequest& schedule = options.request.schedule;
  if (schedule.name.empty() == schedule.file.empty()) reject("simulate: give the NAME of a schedule, or --file FILE");
  const Simulation simulation = answer(options.request);
  print_notes(simulation.notes);
  if (options.format == Format::Json) return simulation_json(simulation);
  if (options.format == Format::Text) return simulate_text(simulation, text_style(options.color, options.output));
  return draw_panels(options.format, simulation.panels);
}

}  // namespace

void add_simulate(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("simulate", "Simulate a schedule: makespan, bubbles, activations in flight");
  command->footer(
      "Examples:\n"
      "  chimera simulate chimera --stages 8 --micro-batches 8 --forward 1 --backward 2\n"
      "  chimera simulate 1f1b --stages 4 --micro-batches 8 --latency 0.1 --format json\n"
      "  chimera simulate schedule.json --with chimera --output page.html\n"
      "  chimera simulate chimera --stages 4 --micro-batches 4 --costs costs.json --sync eager --steps 3\n"
      "  chimera simulate chimera --stages 4 --micro-batches 4 --cores 2   # four processes on two cores\n"
      "  chimera simulate chimera-zb --stages 8 --micro-batches 16 --slow 0:2    # worker 0 has half the speed\n"
      "\nEach worker runs its ops in order, each as soon as its inputs have arrived. Times are those of one worker's "
      "whole share of the model. With --cores, k busy workers each run at the rate min(1, cores / k). If a schedule "
      "has two orders and --order is not given, the order that ends first is timed. `chimera sweep` ranks schedules, "
      "for lists of shapes and times.\n"
      "\nMore: docs/schedules.md");
  auto options = std::make_shared<SimulateArguments>();
  SimulateRequest& request = options->request;
  command->add_option("NAME", request.schedule.name, "name (`chimera schedules` lists all), or a JSON or CSV file");
  begin_group(*command, heading::kSchedule);
  add_path(*command, "--file", request.schedule.file, "the same as NAME, for a file of any name");
  request.schedule.load = read_schedule;
  request.costs.refuses_unused = true;
  add_flags(*command, request);
  add_color(*command, options->color);
  add_format_and_output(*command, options->format,
                        {Format::Text, Format::Json, Format::Svg, Format::Html, Format::Perfetto}, options->output);
  set_common_flags(*command, {"--file", "--stages", "--micro-batches", "--pipelines", "--chunks", "--forward",
                              "--backward", "--latency", "--costs", "--with", "--format", "--output"});
  command->callback([options] {
    check_format(options->format, options->request.schedule.with);
    write_output(options->output, print_simulation(*options), options->format);
  });
}

}  // namespace chimera::apps
