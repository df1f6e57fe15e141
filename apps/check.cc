#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "commands.h"
#include "core/error.h"
#include "options.h"
#include "passes/lower.h"
#include "render/excerpt.h"
#include "schedule_file.h"

namespace chimera::apps {
namespace {

constexpr ChannelDiscipline kDisciplines[] = {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair};

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
};

/// The schedule first; its program only where that is sound.
Report examine(Schedule schedule) {
  Report report{std::move(schedule), {}, {}};
  for (const Violation& violation : check(report.schedule)) {
    report.findings.push_back({"schedule", violation, excerpt(report.schedule, violation.places)});
  }
  if (!report.findings.empty()) return report;
  for (const ChannelDiscipline discipline : kDisciplines) {
    const Program program = lower(report.schedule, {.discipline = discipline});
    const auto violations = check(program, discipline);
    for (const Violation& violation : violations) {
      report.findings.push_back({fmt::format("program, {}", to_text(discipline)), violation, {}});
    }
    if (violations.empty()) report.proofs.push_back({discipline, peak_posted_receives(program)});
  }
  return report;
}

std::string as_text(const Report& report) {
  const Schedule& schedule = report.schedule;
  std::string text;
  for (const Finding& finding : report.findings) {
    text += fmt::format("violation ({}): {}\n{}", finding.level, finding.violation.message, finding.excerpt);
  }
  if (!report.findings.empty()) {
    return text +
           fmt::format("invalid: {} violation{}\n", report.findings.size(), report.findings.size() == 1 ? "" : "s");
  }
  text = fmt::format("valid: {}, {} stages, {} micro-batches, {} replicas, {} workers, {} ops\n", schedule.name,
                     schedule.stages, schedule.micro_batches, schedule.placement.num_replicas(),
                     schedule.workers.size(), num_ops(schedule));
  text += "  schedule: complete, placed right, free of cycles\n";
  for (const Proof& proof : report.proofs) {
    text += fmt::format("  program, {}: cannot get stuck; at most {} receives posted ahead on a worker\n",
                        to_text(proof.discipline), proof.receives_ahead);
  }
  return text;
}

std::string as_json(const Report& report) {
  nlohmann::ordered_json json = {{"valid", report.findings.empty()},
                                 {"name", report.schedule.name},
                                 {"violations", nlohmann::ordered_json::array()}};
  for (const Finding& finding : report.findings) {
    nlohmann::ordered_json places = nlohmann::ordered_json::array();
    for (const Place& place : finding.violation.places) {
      places.push_back({{"worker", place.worker}, {"position", place.position}});
    }
    json["violations"].push_back(
        {{"level", finding.level}, {"message", finding.violation.message}, {"places", places}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

struct Options {
  std::string file;
  std::string format;
};

}  // namespace

void add_check(CLI::App& program, int& exit_code) {
  auto* command = program.add_subcommand("check", "Validate a schedule and prove its program free of deadlock");
  command->footer(
      "Examples:\n"
      "  chimera check schedule.json\n"
      "  chimera schedule chimera --stages 4 --micro-batches 4 --format json | chimera check -\n"
      "\nChecks that every op is there once, on the right worker, and that no ops wait for each other; then lowers\n"
      "the schedule to sends, receives and all-reduces and runs these with no buffering at all, for channels\n"
      "matched per direction (Gloo) and for one serial queue per pair of workers (an NCCL communicator).\n"
      "Exit code 0: valid; 1: not; 2: the text is no schedule.");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "schedule in JSON or CSV; - reads standard input")->required();
  add_format(*command, options->format, {"text", "json"});
  command->callback([options, &exit_code] {
    const Report report = examine(load_schedule(options->file));
    write_output("", options->format == "json" ? as_json(report) : as_text(report));
    exit_code = static_cast<int>(report.findings.empty() ? ExitCode::Success : ExitCode::No);
  });
}

}  // namespace chimera::apps
