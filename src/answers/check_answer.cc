// check_everything() checks the schedule alone first. If it can run, the limits, the order of sums, and the programs
// follow: one for each kind of transport, and each again with pairs that run together.

#include "answers/check_answer.h"

#include <algorithm>
#include <array>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "passes/lower.h"
#include "render/text.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

// Gloo has a channel per direction, NCCL one serial queue per pair of ranks. A program may be right for one only.
constexpr ChannelDiscipline kDisciplines[] = {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair};

void add(const std::vector<Violation>& violations, CheckResult& report, bool are_notes = false) {
  for (const Violation& violation : violations)
    report.findings.push_back({"schedule", violation, excerpt(report.schedule, violation.places), are_notes});
}

void add_programs(CheckResult& report, Pairs pairs) {
  for (const ChannelDiscipline discipline : kDisciplines) {
    const Program program = lower(report.schedule, {.discipline = discipline, .pairs = pairs});
    const auto violations = check(program, discipline);
    const std::string level =
        fmt::format("program, {}{}", to_text(discipline), pairs == Pairs::Together ? ", pairs together" : "");
    for (const Violation& violation : violations)
      report.findings.push_back({level, violation, excerpt(program, violation.places)});
    // Only a program without violations has a number of receives to report.
    if (violations.empty()) report.proofs.push_back({level, peak_posted_receives(program)});
  }
}

/// On a GPU a receive starts to wait after the op before its post, and occupies multiprocessors until its message
/// comes.
std::optional<ReceiveWaits> receive_waits(const Schedule& schedule) {
  const Program program = lower(schedule, {.receives_ahead = kReceivesAheadOnGpus});
  // Times of F, B, I and W.
  const Timeline timeline = simulate(schedule, CostModel::uniform(schedule, {1, 2, 1, 1}));
  const OpTable table(schedule);
  const auto end_of = [&](const Op& op) {
    const OpIndex made = table.find(op.kind, op.stage, op.micro_batch, op.slice);
    const std::size_t w = table.worker(made);
    return timeline.workers[w].ops[made - table.first(w)].end;
  };
  std::optional<ReceiveWaits> longest;
  for (std::size_t w = 0; w < program.workers.size(); ++w) {
    const WorkerTimeline& worker = timeline.workers[w];
    std::size_t next = 0;  // position of the worker's next op
    double beside = 0;
    for (const Instruction& instruction : program.workers[w]) {
      if (instruction.kind == InstructionKind::Compute) ++next;
      if (instruction.kind != InstructionKind::PostReceive) continue;
      const double arrival = end_of(instruction.op);
      // The part of the worker's ops that lies between the post of the receive and the arrival of its message.
      for (std::size_t i = next; i < worker.ops.size() && worker.ops[i].start < arrival; ++i)
        beside += std::min(worker.ops[i].end, arrival) - worker.ops[i].start;
      // The first receive; a schedule without messages has nothing to report.
      if (!longest) longest = ReceiveWaits{};
    }
    if (longest && worker.busy > 0 && beside / worker.busy > longest->mean_waiting)
      *longest = {.worker = WorkerId(static_cast<std::int64_t>(w)), .mean_waiting = beside / worker.busy};
  }
  return longest;
}

/// The order of ops deadlocks every program (Cycle); the order of messages or all-reduces, one of the programs.
bool can_deadlock(const CheckResult& report) {
  constexpr std::array kKinds = {ViolationKind::Cycle, ViolationKind::Deadlock, ViolationKind::AllReduceOrder};
  return std::ranges::any_of(report.findings, [&](const Finding& finding) {
    return std::ranges::find(kKinds, finding.violation.kind) != kKinds.end();
  });
}

nlohmann::ordered_json finding_json(const Finding& finding) {
  const auto places = mapped(finding.violation.places, [](const Place& place) {
    return nlohmann::ordered_json{{"worker", place.worker}, {"position", place.position}};
  });
  return {{"level", finding.level},
          {"kind", to_text(finding.violation.kind)},
          {"message", finding.violation.message},
          {"places", places}};
}

}  // namespace

std::size_t CheckResult::num_violations() const {
  return static_cast<std::size_t>(std::ranges::count(findings, false, &Finding::is_note));
}

void CheckRequest::visit(Door& door) {
  door.object("schedule", [this](Door& fields) { schedule.visit(fields); });
  pairs.visit(door);
  limits.visit(door);
  door.field({"strict_order", "report gradients that are accumulated out of sample order as violations, not as notes"},
             strict_order);
}

CheckResult answer(const CheckRequest& request) {
  return check_everything(request.pairs.apply_to(request.schedule.make()), request.limits.limits(),
                          request.strict_order);
}

CheckResult check_everything(Schedule schedule, const Limits& limits, bool strict_order) {
  CheckResult report{std::move(schedule), {}, {}};
  // The other checks and lower() need a schedule that can run.
  add(check(report.schedule), report);
  if (!report.findings.empty()) return report;
  add(check_limits(report.schedule, limits), report);
  // The order of gradient sums changes results by rounding only, unless the user wants it strict.
  add(check_sample_order(report.schedule), report, /*are_notes=*/!strict_order);
  add_programs(report, Pairs::InOrder);
  if (has_pairs(report.schedule)) add_programs(report, Pairs::Together);
  // A program with a deadlock has no times.
  if (report.is_valid()) report.waits = receive_waits(report.schedule);
  return report;
}

std::string check_text(const CheckResult& result) {
  const Schedule& schedule = result.schedule;
  std::string text;
  for (const Finding& finding : result.findings)
    text += fmt::format("{} ({}): {}\n{}", finding.is_note ? "note" : "violation", finding.level,
                        finding.violation.message, finding.excerpt);
  if (!result.is_valid()) {
    const std::size_t violations = result.num_violations();
    return text + fmt::format("invalid: {}{}\n", counted(violations, "violation"),
                              can_deadlock(result) ? ", among them a deadlock: workers that wait in a cycle" : "");
  }
  text +=
      fmt::format("valid: {}, {}, {}, {}, {}, {}\n", schedule.name, counted(schedule.stages, "stage"),
                  counted(schedule.micro_batches, "micro-batch"), counted(schedule.placement.num_replicas(), "replica"),
                  counted(schedule.workers.size(), "worker"), counted(num_ops(schedule), "op"));
  // The proofs are listed, because a bare `valid` would not say what was checked.
  text += fmt::format("  schedule: complete, placed right, no deadlock (no cycle of waits){}\n",
                      schedule.updates ? ", weight versions right" : "");
  for (const Proof& proof : result.proofs) {
    text += fmt::format("  {}: cannot deadlock; at most {} posted ahead on a worker\n", proof.level,
                        counted(proof.receives_ahead, "receive"));
  }
  if (result.waits) {
    text += fmt::format(
        "  on GPUs, where receives are posted an op ahead: {:.2f} receives wait beside an op of worker {}, the most\n",
        result.waits->mean_waiting, result.waits->worker.value());
  }
  return text;
}

std::string check_json(const CheckResult& result) {
  nlohmann::ordered_json json = {{"valid", result.is_valid()},
                                 {"name", result.schedule.name},
                                 {"violations", nlohmann::ordered_json::array()},
                                 {"notes", nlohmann::ordered_json::array()}};
  for (const Finding& finding : result.findings)
    json[finding.is_note ? "notes" : "violations"].push_back(finding_json(finding));
  if (result.waits)
    json["receive_waits"] = {{"worker", result.waits->worker.value()}, {"beside_an_op", result.waits->mean_waiting}};
  return json_report(json);
}

}  // namespace chimera
