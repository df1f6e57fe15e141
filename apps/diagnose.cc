#include <memory>

#include "commands.h"
#include "help.h"
#include "launch/flight/diagnosis.h"
#include "options.h"

namespace chimera::apps {
namespace {

struct DiagnoseCommand {
  std::string run;
  std::int64_t events = 8;
  Format format = Format::Text;
};

void print_diagnosis(const DiagnoseCommand& command) {
  require_between("--events", command.events, 0, static_cast<std::int64_t>(kFlightEvents));
  const Flight flight = read_flight_folder(command.run);
  const Diagnosis diagnosis = diagnose(flight);
  const auto events = static_cast<std::size_t>(command.events);
  write_output(
      "", command.format == Format::Json ? to_json(diagnosis, flight, events) : to_text(diagnosis, flight, events));
}

}  // namespace

void add_diagnose(CLI::App& program, int&) {
  auto* diagnose = program.add_subcommand("diagnose", "Say which rank ended a run, in what, and who waited for whom");
  diagnose->footer(
      "Examples:\n"
      "  chimera diagnose run\n"
      "  chimera diagnose run/flight-previous --events 100   # the start before the last\n"
      "  chimera diagnose run --format json --events 20000\n"
      "\nEvery rank of `chimera train --checkpoint run` keeps its last 20,000 instructions, with times, in a file of "
      "run/flight, which is there however the rank ended, and goes when the run ends well (docs/faults.md). The rank "
      "that the launcher blamed is guilty; where it could blame none, as it was killed itself, the one that waited for "
      "nobody. Of a run that still runs, it says where its ranks are.");
  auto command = std::make_shared<DiagnoseCommand>();
  diagnose->add_option("RUN", command->run, "folder of --checkpoint or --flight-record")->required();
  begin_group(*diagnose, heading::kOutput);
  add_count(*diagnose, "--events", command->events,
            "last instructions that are printed: of the guilty rank, in JSON of each (default 8)");
  add_format(*diagnose, command->format, {Format::Text, Format::Json});
  diagnose->callback([command] { print_diagnosis(*command); });
}

}  // namespace chimera::apps
