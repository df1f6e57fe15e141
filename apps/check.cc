#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "check/check_limits.h"
#include "check/check_program.h"
#include "check/check_schedule.h"
#include "commands.h"
#include "core/error.h"
#include "help.h"
#include "options.h"
#include "passes/lower.h"
#include "render/excerpt.h"
#include "schedule_file.h"

namespace chimera::apps {
namespace {

constexpr ChannelDiscipline kDisciplines[] = {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair};

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

struct Finding {
  std::string level;  // "schedule", or "program" and its discipline
  Violation violation;
  std::string excerpt;  // the rows of the counter-example
};

struct Proof {
  ChannelDiscipline discipline;
  std::int64_t receives_ahead;  // most receives that a worker has posted and not yet waited for
};

struct Report {
  Schedule schedule;
  std::vector<Finding> findings;
  std::vector<Proof> proofs;  // of the programs that cannot get stuck

  void add(const std::vector<Violation>& violations) {
    for (const Violation& violation : violations) {
      findings.push_back({"schedule", violation, excerpt(schedule, violation.places)});
    }
  }

  [[nodiscard]] std::size_t count(Severity severity) const {
    return static_cast<std::size_t>(std::count_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.violation.severity == severity;
    }));
  }
  [[nodiscard]] bool is_valid() const { return count(Severity::Violation) == 0; }
};

/// The schedule first; its limits and its programs only where that is sound.
Report examine(Schedule schedule, const Options& options) {
  Report report{std::move(schedule), {}, {}};
  report.add(check(report.schedule));
  if (!report.findings.empty()) return report;
  report.add(check_limits(report.schedule, options.limits()));
  report.add(check_sample_order(report.schedule, options.strict_order ? Severity::Violation : Severity::Note));
  for (const ChannelDiscipline discipline : kDisciplines) {
    const Program program = lower(report.schedule, {.discipline = discipline});
    const auto violations = check(program, discipline);
    for (const Violation& violation : violations) {
      report.findings.push_back(
          {fmt::format("program, {}", to_text(discipline)), violation, excerpt(program, violation.places)});
    }
    if (violations.empty()) report.proofs.push_back({discipline, peak_posted_receives(program)});
  }
  return report;
}

const char* to_text(Severity severity) { return severity == Severity::Violation ? "violation" : "note"; }

std::string as_text(const Report& report) {
  const Schedule& schedule = report.schedule;
  std::string text;
  for (const Finding& finding : report.findings) {
    text += fmt::format("{} ({}): {}\n{}", to_text(finding.violation.severity), finding.level,
                        finding.violation.message, finding.excerpt);
  }
  if (!report.is_valid()) {
    const std::size_t violations = report.count(Severity::Violation);
    return text + fmt::format("invalid: {} violation{}\n", violations, violations == 1 ? "" : "s");
  }
  text += fmt::format("valid: {}, {} stages, {} micro-batches, {} replicas, {} workers, {} ops\n", schedule.name,
                      schedule.stages, schedule.micro_batches, schedule.placement.num_replicas(),
                      schedule.workers.size(), num_ops(schedule));
  text += fmt::format("  schedule: complete, placed right, free of cycles{}\n",
                      schedule.updates ? ", weight versions right" : "");
  for (const Proof& proof : report.proofs) {
    text += fmt::format("  program, {}: cannot get stuck; at most {} receives posted ahead on a worker\n",
                        to_text(proof.discipline), proof.receives_ahead);
  }
  return text;
}

nlohmann::ordered_json as_json(const Finding& finding) {
  nlohmann::ordered_json places = nlohmann::ordered_json::array();
  for (const Place& place : finding.violation.places) {
    places.push_back({{"worker", place.worker}, {"position", place.position}});
  }
  return {{"level", finding.level},
          {"kind", to_text(finding.violation.kind)},
          {"message", finding.violation.message},
          {"places", places}};
}

std::string as_json(const Report& report) {
  nlohmann::ordered_json json = {{"valid", report.is_valid()},
                                 {"name", report.schedule.name},
                                 {"violations", nlohmann::ordered_json::array()},
                                 {"notes", nlohmann::ordered_json::array()}};
  for (const Finding& finding : report.findings) {
    json[finding.violation.severity == Severity::Violation ? "violations" : "notes"].push_back(as_json(finding));
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

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
    const Report report = examine(load_schedule(options->file), *options);
    write_output("", options->format == Format::Json ? as_json(report) : as_text(report));
    exit_code = static_cast<int>(report.is_valid() ? ExitCode::Success : ExitCode::No);
  });
}

}  // namespace chimera::apps
