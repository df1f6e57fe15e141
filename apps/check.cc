#include <memory>

#include "answers/check_answer.h"
#include "commands.h"
#include "core/error.h"
#include "help.h"
#include "limit_flags.h"
#include "options.h"
#include "schedule_file.h"

namespace chimera::apps {
namespace {

struct CheckArguments {
  std::string file;
  Format format = Format::Text;
  LimitFlags limits;
  bool strict_order = false;
};

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
  auto options = std::make_shared<CheckArguments>();
  command->add_option("FILE", options->file, "schedule in JSON or CSV; - reads standard input")->required();
  options->limits.add_to(*command);
  command->add_flag("--strict-order", options->strict_order,
                    "treat gradients that a replica accumulates out of sample order as a violation instead of a note");
  begin_group(*command, heading::kOutput);
  add_format(*command, options->format, {Format::Text, Format::Json});
  command->callback([options, &exit_code] {
    (void)options->limits.limits();  // reject bad flags before reading
    const CheckReport report = examine(load_schedule(options->file), options->limits.limits(), options->strict_order);
    write_output("", options->format == Format::Json ? check_json(report) : check_text(report));
    exit_code = static_cast<int>(report.is_valid() ? ExitCode::Success : ExitCode::No);
  });
}

}  // namespace chimera::apps
