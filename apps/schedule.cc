#include <algorithm>
#include <memory>

#include "answers/check_answer.h"
#include "commands.h"
#include "core/error.h"
#include "flags/costs.h"
#include "flags/lost.h"
#include "flags/outputs.h"
#include "flags/shape.h"
#include "flags/values.h"
#include "help.h"
#include "pictures.h"
#include "render/slots.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"
#include "simulate/simulate.h"

namespace chimera::apps {
namespace {

struct ScheduleArguments {
  std::string name;
  ShapeFlags shape;
  PairFlags pairs;
  LostFlags lost;
  std::int64_t data_parallel = 1;
  PictureFlags pictures;
  Format format = Format::Text;
  bool communication = false;
  std::string output;
};

std::string pictures_as_text(const std::vector<Panel>& panels, const TextStyle& style) {
  // A single picture needs no title.
  if (panels.size() == 1) return to_text(panels.front().schedule, panels.front().timeline, style);
  std::string text;
  for (const Panel& panel : panels) {
    text += panel.title + "\n" + to_text(panel.schedule, panel.timeline, style) + "\n";
  }
  return text + comparison_table(panels);
}

std::string as_csv(const Schedule& schedule, bool communication) {
  if (!communication) return to_csv(schedule);
  if (schedule.updates) {
    throw ConfigError("schedule: PyTorch's CSV has no updates between ops; leave out --communication");
  }
  return csv_with_messages(schedule);
}

/// Uses the default costs of `chimera simulate`.
double usual_makespan(const Schedule& schedule) {
  // CostFlags asks its command which flags are given. This one has none, so the defaults count.
  CLI::App nothing_given;
  CostFlags usual;
  usual.add_to(nothing_given);
  return simulate(schedule, usual.costs_of(schedule)).makespan;
}

Schedule named_schedule(const ScheduleArguments& options, const MakeSchedule& make) {
  if (!names_schedule_file(options.name)) return options.shape.generate(options.name, options.pictures.with, make);
  require_no_shape(options.shape, "schedule: " + options.name);
  return options.pairs.apply_to(read_schedule(options.name));
}

std::string print_schedule(const ScheduleArguments& options) {
  // A schedule with two orders is drawn in the order that `chimera simulate` chooses at its default costs.
  const MakeSchedule make = fastest(options.shape, options.pairs, usual_makespan);
  const Schedule healthy = named_schedule(options, make);
  if (options.data_parallel > 1 && !options.lost.is_given()) {
    throw ConfigError("--data-parallel needs --without: all groups run the same schedule");
  }
  std::string summary;
  const Schedule schedule = options.lost.apply_to(healthy, options.data_parallel, summary);
  // Files hold the schedule, pictures its slots.
  if (options.format == Format::Json) return to_json(schedule);
  if (options.format == Format::Csv) return as_csv(schedule, options.communication);
  std::vector<Schedule> drawn_together = options.pictures.further_schedules(healthy, options.shape, make);
  drawn_together.insert(drawn_together.begin(), schedule);
  // A whole backward then takes two units, so that all pictures have the same work.
  const bool mixed = drawn_together.size() > 1 && std::ranges::any_of(drawn_together, has_split_backwards);
  std::vector<Panel> panels;
  for (const Schedule& each : drawn_together) panels.push_back(paper_figure(each, mixed ? 2 : 1));
  if (options.format == Format::Text) {
    return pictures_as_text(panels, options.pictures.text_style(options.output)) + summary;
  }
  return draw_panels(options.format, panels);
}

}  // namespace

void add_schedule(CLI::App& program, int&) {
  auto* command = program.add_subcommand("schedule", "Generate a schedule as a picture, JSON or CSV");
  command->footer(
      "Examples:\n"
      "  chimera schedule chimera --stages 4 --micro-batches 4\n"
      "  chimera schedule chimera --stages 8 --micro-batches 8 --pipelines 4\n"
      "  chimera schedule 1f1b --stages 4 --micro-batches 8 --format json | chimera check -\n"
      "  chimera schedule gpipe --stages 4 --micro-batches 8 --format csv --communication\n"
      "  chimera schedule chimera --stages 8 --micro-batches 8 --with 1f1b --output page.html\n"
      "  chimera schedule chimera-zb --stages 4 --micro-batches 8 --without 1 --data-parallel 2\n"
      "\nIn the picture, a cell names stage, op and micro-batch (2F5). All slots have equal length; beside a schedule "
      "with split backwards, a whole backward takes two slots. If a schedule has two orders and --order is not given, "
      "the order that ends first is shown, as in `chimera simulate`.\n"
      "\nMore: docs/schedules.md, docs/schedule_format.md");
  auto options = std::make_shared<ScheduleArguments>();
  complete_names(
      command->add_option("NAME", options->name, "name (`chimera schedules` lists all), or a JSON or CSV file")
          ->required(),
      schedule_names());
  options->shape.add_to(*command);
  options->pairs.add_to(*command);
  options->lost.add_to(*command);
  add_count(*command, "--data-parallel", options->data_parallel, "with --without: number of groups (W; default 1)");
  begin_group(*command, heading::kOutput);
  options->pictures.add_to(*command);
  add_format_and_output(*command, options->format,
                        {Format::Text, Format::Json, Format::Csv, Format::Svg, Format::Html, Format::Perfetto},
                        options->output);
  command->add_flag("--communication", options->communication, "include sends and receives, with --format csv");
  command->callback([options] {
    if (options->communication && options->format != Format::Csv) {
      throw ConfigError("schedule: --communication goes with --format csv");
    }
    options->pictures.check_format(options->format);
    write_output(options->output, print_schedule(*options));
  });
}

}  // namespace chimera::apps
