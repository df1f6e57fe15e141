#include <memory>

#include "answers/schedule_answer.h"
#include "commands.h"
#include "core/reject.h"
#include "flags/files.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "pictures.h"
#include "schedule/schedule_json.h"

namespace chimera::apps {
namespace {

struct ScheduleArguments : RequestArguments<DrawRequest> {
  ColorChoice color = ColorChoice::Auto;
  bool communication = false;
};

std::string print_schedule(const ScheduleArguments& options) {
  const Drawing drawing = answer(options.request);
  // Files hold the schedule, pictures its slots.
  if (options.format == Format::Json) return to_json(drawing.schedules.front());
  if (options.format == Format::Csv) return schedule_csv(drawing.schedules.front(), options.communication);
  if (options.format == Format::Text) return drawing_text(drawing, text_style(options.color, options.output));
  return draw_panels(options.format, figures(drawing));
}

}  // namespace

void add_schedule(CLI::App& program, const Invocation&, int&) {
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
  DrawRequest& request = options->request;
  command->add_option("NAME", request.schedule.name, "name (`chimera schedules` lists all), or a JSON or CSV file")
      ->required();
  request.schedule.load = read_schedule;
  add_flags(*command, request);
  // Colors are of the output, so the request, which the playground has too, does not know them.
  add_color(*command, options->color);
  add_format_and_output(*command, options->format,
                        {Format::Text, Format::Json, Format::Csv, Format::Svg, Format::Html, Format::Perfetto},
                        options->output);
  command->add_flag("--communication", options->communication, "include sends and receives, with --format csv");
  command->callback([options] {
    if (options->communication && options->format != Format::Csv)
      reject("schedule: --communication goes with --format csv");
    check_format(options->format, options->request.schedule.with);
    write_output(options->output, print_schedule(*options));
  });
}

}  // namespace chimera::apps
