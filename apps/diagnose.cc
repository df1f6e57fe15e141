// `chimera diagnose` answers two questions with one word, because a user has one: what is the matter? For the folder of
// a run, it reads flight records: why did it end, and why is it slow (launch/flight/diagnosis.h). For traces, also of
// PyTorch's pipelines, it finds the schedule that ran, and better ones (traces/diagnosis.h). has_traces() decides.

#include <fmt/ranges.h>
#include <memory>
#include <thread>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "commands.h"
#include "core/core_use.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "launch/flight/diagnosis.h"
#include "pictures.h"
#include "schedule/schedule_csv.h"
#include "simulate/costs_json.h"
#include "telemetry/run_history.h"
#include "telemetry/speed_report.h"
#include "telemetry/top_view.h"
#include "traces/diagnosis.h"

namespace chimera::apps {
namespace {

struct DiagnoseCommand {
  std::string run;                 // Of one folder of a run
  std::vector<std::string> paths;  // Folder of a run, or trace files and their folders
  std::int64_t events = 8;
  Format format = Format::Text;
  TraceSteps steps;
  double search_seconds = 2;
  std::string output;
  CLI::Option* steps_option = nullptr;
  CLI::Option* events_option = nullptr;
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

/// Returns the changes of the order of ops, none without metrics in the folder.
std::vector<std::string> changes_in(const std::filesystem::path& folder) {
  try {
    return changes_of_order(read_run(folder.empty() ? "." : folder.string()).steps);
  } catch (const ConfigError&) {
    return {};
  }
}

/// Prints an answer as JSON or text, with the changes of the order in the folder of the run.
void print_answer(Format format, nlohmann::ordered_json json, const std::string& text,
                  const std::filesystem::path& folder) {
  const auto changes = changes_in(folder);
  json["order_changes"] = changes;
  if (format == Format::Json) return write_output("", json_report(std::move(json)));
  const std::string end =
      changes.empty() ? "" : fmt::format("changes of the order:\n  {}\n", fmt::join(changes, "\n  "));
  write_output("", text + end, Format::Text);
}

/// Measures how much other processes use the cores of a job that runs here.
void measure_others(const Flight& flight, SpeedAnalysis& speed) {
  // A rank keeps its record open. The metrics may be in any folder.
  std::optional<pid_t> process;
  for (std::size_t rank = 0; !process && rank < flight.ranks.size(); ++rank)
    if (const auto live = LiveRun::find(flight_path(flight.folder, static_cast<int>(rank)))) process = live->process();
  const auto begin = process ? sample_core_use() : std::nullopt;
  if (!begin) return;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto end = sample_core_use();
  if (!end) return;
  speed.others_share = load_of_others(*begin, *end, job_seconds(*begin, *end, *process));
  speed.busiest_other = busiest_other(*begin, *end, *process);
}

void print_diagnosis(const DiagnoseCommand& command) {
  require_between("--events", command.events, 0, static_cast<std::int64_t>(kFlightEvents));
  const auto past = has_flight(command.run) ? std::nullopt : read_speed(command.run);
  // A run that has ended well has no flight records.
  if (past) {
    return print_answer(
        command.format, {{"folder", command.run}, {"speed", *past}},
        fmt::format("{}: the last run has ended well\n{}", command.run, past->at("text").get<std::string>()),
        command.run);
  }
  const Flight flight = read_flight_folder(command.run);
  auto speed = speed_of(flight);
  if (speed && !flight.verdict) measure_others(flight, *speed);
  Diagnosis diagnosis = diagnose(flight);
  // Flight records are in a folder below the folder of checkpoints.
  const auto folder = std::filesystem::path(flight.folder).parent_path();
  diagnosis.newest_checkpoint = newest_of_run(folder);
  const auto events = static_cast<std::size_t>(command.events);
  auto json = read_ordered_json(to_json(diagnosis, flight, events));
  json["speed"] = speed ? to_json(*speed) : nullptr;
  print_answer(command.format, std::move(json), to_text(diagnosis, flight, events) + (speed ? to_text(*speed) : ""),
               folder);
}

/// A folder of a run has flight records or metrics. Other folders, and files, have traces.
bool has_traces(const DiagnoseCommand& command) {
  namespace fs = std::filesystem;
  const std::string& path = command.paths.front();
  if (command.paths.size() > 1 || path.ends_with(".json") || path.ends_with(".json.gz")) return true;
  if (has_flight(path) || read_speed(path) || fs::exists(fs::path(path) / "metrics.jsonl")) return false;
  return fs::is_directory(path) && !find_trace_files(command.paths).empty();
}

void print_trace_diagnosis(const DiagnoseCommand& command) {
  if (command.events_option->count() > 0) reject("--events is for the folder of a run; leave it out");
  if (!command.output.empty()) require_writable_whole((std::filesystem::path(command.output) / "ran.csv").string());
  const TraceDiagnosis diagnosis = diagnose_trace(read_traces(command.paths, command.steps), command.search_seconds);
  if (!command.output.empty()) write_diagnosis(diagnosis, command.output);
  switch (command.format) {
    case Format::Text: return write_output("", to_text(diagnosis), Format::Text);
    case Format::Json: return write_output("", json_report(to_json(diagnosis)));
    case Format::Csv: return write_output("", to_csv(diagnosis.trace.schedule));
    case Format::Costs: return write_output("", costs_to_json(diagnosis.costs) + "\n");
    default: return write_output("", draw_panels(command.format, panels_of(diagnosis)));
  }
}

void require_readable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code why;
  if (fs::status(path, why).type() == fs::file_type::not_found)
    reject("{}: no such run or trace; give the folder of --checkpoint or --flight-record, or traces", path);
  if (fs::status(fs::path(path) / "flight", why).type() == fs::file_type::none)
    reject("{}: cannot be read ({})", path, why.message());
}

void diagnose_paths(DiagnoseCommand& command) {
  for (const std::string& path : command.paths) require_readable(path);
  if (has_traces(command)) return print_trace_diagnosis(command);
  command.run = command.paths.front();
  if (command.steps_option->count() > 0 || !command.output.empty())
    reject("--steps and --output are for traces; leave them out for the folder of a run");
  if (command.format != Format::Text && command.format != Format::Json)
    reject("--format {} is for traces; a run has text and json", to_text(command.format));
  print_diagnosis(command);
}

void read_steps(const std::string& text, TraceSteps& steps) {
  const auto dash = text.find('-');
  steps.first = parse_count("--steps", text.substr(0, dash));
  steps.last = dash == text.npos ? steps.first : parse_count("--steps", text.substr(dash + 1));
}

}  // namespace

void add_diagnose(CLI::App& program, const Invocation&, int&) {
  auto* diagnose =
      program.add_subcommand("diagnose", "Find why a run ended or is slow, also from traces of torch.profiler");
  diagnose->footer(
      "Examples:\n"
      "  chimera diagnose run\n"
      "  chimera diagnose run/flight-previous --events 100   # the attempt before the last one\n"
      "  chimera diagnose run --format json --events 20000\n"
      "  chimera diagnose rank0.json rank1.json --output diagnosis\n"
      "\nEach rank of `chimera train --checkpoint run` records its last 20,000 instructions in run/flight. The files "
      "survive any crash and are removed when the run succeeds. The guilty rank is the rank that the launcher blamed, "
      "or else the rank that waited for no other rank. For a live run, the command shows the current position of each "
      "rank.\n"
      "\nThe last part answers why the run is slower than predicted: the time of a step beside the plan's, its parts, "
      "ops beside the profile of --machine, slow ranks, and other processes. It is about the last steps in the records "
      "or, after a run that has ended well, about all of it.\n"
      "\nTraces are files of torch.profiler's export_chrome_trace(), one for each rank of "
      "torch.distributed.pipelining, or a file of `chimera train --trace`. The command prints the schedule that ran, "
      "where the time went, costs, a replay, and faster schedules. --output writes them as files.\n"
      "\nMore: docs/faults.md, docs/why_slow.md");
  auto command = std::make_shared<DiagnoseCommand>();
  diagnose->add_option("PATH", command->paths, "folder of --checkpoint or --flight-record; or traces and their folders")
      ->required();
  begin_group(*diagnose, heading::kOutput);
  command->events_option =
      add_count(*diagnose, "--events", command->events,
                "number of last instructions to print: of the guilty rank, in JSON of each rank (default 8)");
  command->steps_option = add_text(
      *diagnose, "--steps", [command](const std::string& text) { read_steps(text, command->steps); }, "A-B",
      "traces: steps to read, from 1 (default all)");
  add_number(*diagnose, "--search-seconds", command->search_seconds,
             "traces: seconds to search for a faster order (default 2)");
  add_path(*diagnose, "--output", command->output,
           "traces: also write costs.json, ran.csv, better-1.csv ... and timeline.html into this folder",
           PathKind::Folder);
  add_format(*diagnose, command->format,
             {Format::Text, Format::Json, Format::Csv, Format::Svg, Format::Html, Format::Perfetto, Format::Costs});
  diagnose->callback([command] { diagnose_paths(*command); });
}

}  // namespace chimera::apps
