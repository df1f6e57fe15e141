#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "commands.h"
#include "core/json.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "launch/flight/diagnosis.h"
#include "telemetry/speed_report.h"

namespace chimera::apps {
namespace {

struct DiagnoseCommand {
  std::string run;
  std::int64_t events = 8;
  Format format = Format::Text;
};

/// Returns an empty path if there is no checkpoint.
std::string newest_of_run(const std::filesystem::path& run) {
  const std::string folder = run.empty() ? "." : run.string();
  try {
    const auto steps = list_steps(folder);
    return steps.empty() ? "" : checkpoint_path(folder, steps.back());
  } catch (const CheckpointError&) {
    return "";
  }
}

/// Prints the speed of a run that has ended well: its flight records are gone.
void print_speed(const DiagnoseCommand& command, const nlohmann::ordered_json& speed) {
  if (command.format == Format::Json) {
    const nlohmann::ordered_json json = {{"folder", command.run}, {"speed", speed}};
    return write_output("", json_text(json, 2) + "\n");
  }
  const auto text = speed.at("text").get<std::string>();
  write_output("", fmt::format("{}: the last run has ended well\n{}", command.run, text));
}

void print_diagnosis(const DiagnoseCommand& command) {
  require_between("--events", command.events, 0, static_cast<std::int64_t>(kFlightEvents));
  if (!has_flight(command.run)) {
    if (const auto speed = read_speed(command.run)) return print_speed(command, *speed);
  }
  const Flight flight = read_flight_folder(command.run);
  const auto speed = speed_of(flight);
  Diagnosis diagnosis = diagnose(flight);
  // Flight records are in a folder below the folder of checkpoints.
  diagnosis.newest_checkpoint = newest_of_run(std::filesystem::path(flight.folder).parent_path());
  const auto events = static_cast<std::size_t>(command.events);
  if (command.format == Format::Json) {
    auto json = read_ordered_json(to_json(diagnosis, flight, events));
    json["speed"] = speed ? to_json(*speed) : nullptr;
    return write_output("", json_text(json, 2) + "\n");
  }
  write_output("", to_text(diagnosis, flight, events) + (speed ? to_text(*speed) : ""));
}

}  // namespace

void add_diagnose(CLI::App& program, int&) {
  auto* diagnose =
      program.add_subcommand("diagnose", "Find the rank that ended a run, and why its steps are slower than predicted");
  diagnose->footer(
      "Examples:\n"
      "  chimera diagnose run\n"
      "  chimera diagnose run/flight-previous --events 100   # the attempt before the last one\n"
      "  chimera diagnose run --format json --events 20000\n"
      "\nEach rank of `chimera train --checkpoint run` records its last 20,000 instructions in run/flight. The files "
      "survive any crash and are removed when the run succeeds. The guilty rank is the rank that the launcher blamed, "
      "or else the rank that waited for no other rank. For a live run, the command shows the current position of each "
      "rank.\n"
      "\nThe last part answers why the run is slower than predicted: the time of a step beside the plan's, its parts, "
      "ops beside the profile of --machine, slow ranks, and other processes. It is about the last steps in the records "
      "or, after a run that has ended well, about all of it.\n"
      "\nMore: docs/faults.md");
  auto command = std::make_shared<DiagnoseCommand>();
  diagnose->add_option("RUN", command->run, "folder of --checkpoint or --flight-record")->required();
  begin_group(*diagnose, heading::kOutput);
  add_count(*diagnose, "--events", command->events,
            "number of last instructions to print: of the guilty rank, in JSON of each rank (default 8)");
  add_format(*diagnose, command->format, {Format::Text, Format::Json});
  diagnose->callback([command] { print_diagnosis(*command); });
}

}  // namespace chimera::apps
