#include <memory>

#include "commands.h"
#include "options.h"
#include "render/text.h"
#include "schedule/schedule_json.h"

namespace chimera::apps {
namespace {

struct Options {
  std::string name;
  ShapeFlags shape;
  std::string format;
  std::string output;
};

/// In slots of equal length, as the paper draws: every op takes one unit, forwards just in time.
std::string picture(const Schedule& schedule) {
  const CostModel slots{std::vector<StageCosts>(static_cast<std::size_t>(schedule.stages))};
  return to_text(schedule, forwards_just_in_time(schedule, slots, simulate(schedule, slots)));
}

}  // namespace

void add_schedule(CLI::App& program, int&) {
  auto* command = program.add_subcommand("schedule", "Generate a schedule: as a picture, or as JSON");
  command->footer(
      "Examples:\n"
      "  chimera schedule chimera --stages 4 --micro-batches 4\n"
      "  chimera schedule chimera --stages 8 --micro-batches 8 --pipelines 4\n"
      "  chimera schedule 1f1b --stages 4 --micro-batches 8 --format json | chimera check -\n"
      "\nThe picture has a cell for each slot of equal length: stage, op, micro-batch (2F5); forwards stand as\n"
      "late as nothing waits for them. `chimera simulate` times ops as soon as they can run.");
  auto options = std::make_shared<Options>();
  command->add_option("NAME", options->name, "name of the schedule; `chimera schedules` lists them")->required();
  options->shape.add_to(*command);
  add_format(*command, options->format, {"text", "json"});
  add_path(*command, "--output", options->output, "file to write instead of standard output");
  command->callback([options] {
    const Schedule schedule = options->shape.generate(options->name);
    write_output(options->output, options->format == "json" ? to_json(schedule) : picture(schedule));
  });
}

}  // namespace chimera::apps
