#include <memory>

#include "answers/check_answer.h"
#include "commands.h"
#include "core/error.h"
#include "core/files.h"
#include "flags/files.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"

namespace chimera::apps {

void add_check(CLI::App& program, const Invocation&, int& exit_code) {
  auto* command = program.add_subcommand("check", "Validate a schedule and prove its program free of deadlock");
  command->footer(
      "Examples:\n"
      "  chimera check schedule.json\n"
      "  chimera check chimera --stages 4 --micro-batches 4\n"
      "  chimera check schedule.json --max-in-flight 4 --strict-order\n"
      "\nThe checker first verifies that every op is present once, on the right worker, without cyclic waits. Then it "
      "lowers the schedule to sends, receives and all-reduces, and runs them without buffers: with one channel per "
      "direction (Gloo) and with one serial queue per pair of workers (NCCL). For asynchronous schedules it also "
      "checks stashed weight versions.\n"
      "\nExit codes: 0 valid; 1 invalid; 2 the text is not a schedule.\n"
      "\nMore: docs/schedule_format.md");
  auto options = std::make_shared<RequestArguments<CheckRequest>>();
  command
      ->add_option("NAME", options->request.schedule.name,
                   "name (`chimera schedules` lists all), or a JSON or CSV file; - reads standard input")
      ->required();
  // Not read_schedule(), which throws at the first violation: this command lists all.
  options->request.schedule.load = load_schedule;
  add_flags(*command, options->request);
  add_format(*command, options->format, {Format::Text, Format::Json});
  command->callback([options, &exit_code] {
    // A schedule may come from standard input, and waiting for it would hide the error.
    (void)options->request.limits.limits();  // reject bad flags before reading
    ScheduleRequest& schedule = options->request.schedule;
    // An existing file may have any name. A name of a schedule without such a file is generated.
    if (path_exists(schedule.name)) schedule.file = std::exchange(schedule.name, "");
    const CheckResult report = answer(options->request);
    write_output("", options->format == Format::Json ? check_json(report) : check_text(report));
    exit_code = static_cast<int>(report.is_valid() ? ExitCode::Success : ExitCode::No);
  });
}

}  // namespace chimera::apps
