#include <memory>

#include "check/check_limits.h"
#include "commands.h"
#include "core/error.h"
#include "help.h"
#include "options.h"
#include "report/check_report.h"
#include "schedule_file.h"

namespace chimera::apps {
namespace {

struct Options {
  std::string file;
  Format format = Format::Text;
  double in_flight = 0;
  MemoryLimit memory;
  bool strict_order = false;
  CLI::Option* in_flight_option = nullptr;
  CLI::Option* memory_option = nullptr;
  std::vector<CLI::Option*> bytes_options;

  [[nodiscard]] Limits limits() const {
    Limits limits;
    if (in_flight_option->count() > 0) limits.in_flight = in_flight;
    if (memory_option->count() > 0) limits.memory = memory;
    for (const CLI::Option* option : bytes_options) {
      if ((option->count() > 0) == limits.memory.has_value()) continue;
      throw ConfigError("--memory, --activation-bytes and --weight-bytes come together");
    }
    return limits;
  }
};

void add_limits(CLI::App& command, Options& options) {
  begin_group(command, heading::kLimits);
  options.in_flight_option =
      add_number(command, "--max-in-flight", options.in_flight,
                 "most activations that a worker may hold, in stage units: one unit is a full micro-batch on a "
                 "worker's whole share of the model, so that each of v virtual stages counts 1/v");
  options.memory_option = add_number(command, "--memory", options.memory.bytes,
                                     "most bytes that a worker may hold; needs the next two flags");
  options.bytes_options = {
      add_number(command, "--activation-bytes", options.memory.activation_bytes,
                 "bytes that one stage unit of activations takes"),
      add_number(
          command, "--weight-bytes", options.memory.weight_bytes,
          "bytes of the weights of one worker's share of the model, with gradients and optimizer state where they are "
          "to count; a further replica or stashed weight version counts again, message buffers do not")};
  command.add_flag("--strict-order", options.strict_order,
                   "treat gradients that a replica accumulates out of sample order as a violation instead of a note");
}

}  // namespace

void add_check(CLI::App& program, int& exit_code) {
  auto* command = program.add_subcommand("check", "Validate a schedule and prove its program free of deadlock");
  command->footer(
      "Examples:\n"
      "  chimera check schedule.json\n"
      "  chimera schedule chimera --stages 4 --micro-batches 4 --format json | chimera check -\n"
      "  chimera check schedule.json --max-in-flight 4 --strict-order\n"
      "\nFirst the schedule is checked: every op must be there once, on the right worker, and no ops may wait for each "
      "other. Then the schedule is lowered to sends, receives and all-reduces, and these are run with no buffering at "
      "all, once with sends and receives matched in each direction (as Gloo does) and once with one serial queue for "
      "each pair of workers (as an NCCL communicator does). In an asynchronous schedule the stashed weight versions "
      "must also exist, agree and not be too many. Where a limit is exceeded, the first op of each worker that exceeds "
      "it is named, the earliest of them first.\n"
      "\nExit codes: 0 the schedule is valid; 1 it is not; 2 the text is no schedule.");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "schedule in JSON or CSV; - reads standard input")->required();
  add_limits(*command, *options);
  begin_group(*command, heading::kOutput);
  add_format(*command, options->format, {Format::Text, Format::Json});
  command->callback([options, &exit_code] {
    (void)options->limits();  // refused before anything is read
    const CheckReport report = examine(load_schedule(options->file), options->limits(), options->strict_order);
    write_output("", options->format == Format::Json ? check_json(report) : check_text(report));
    exit_code = static_cast<int>(report.is_valid() ? ExitCode::Success : ExitCode::No);
  });
}

}  // namespace chimera::apps
