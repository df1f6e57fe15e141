#include "launch/local/failure_report.h"

#include <limits.h>
#include <signal.h>

#include <fmt/format.h>
#include <algorithm>

#include "core/json.h"

namespace chimera {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FailureReport, rank, op, message, own_cause, usage, is_final)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RecoveryNote, rank, kind, generation, step, groups)

namespace {

/// Truncates `text` to `length` bytes; replaces control characters by spaces.
std::string one_line(std::string_view text, std::size_t length) {
  std::string line(text.substr(0, length));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return line;
}

/// Returns nothing for text that is no JSON of this type.
template <class Message>
std::optional<Message> parse(std::string_view line) {
  try {
    return read_json(line).get<Message>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool has_exited_with(const RankOutcome& outcome, ExitCode code) {
  return outcome.ending && outcome.ending->has_exited_with(code);
}

bool was_killed_from_outside(const RankOutcome& outcome) {
  return !outcome.report && outcome.ending && outcome.ending->was_killed_by(SIGKILL);
}

}  // namespace

ExitCode exit_code_of(const FailureReport& report) {
  if (!report.own_cause) return ExitCode::PeerLost;
  return report.usage ? ExitCode::Usage : ExitCode::No;
}

// All ranks write to one pipe. Only a write of at most PIPE_BUF bytes is atomic, so long messages are cut. JSON may
// need three bytes for one.
std::string to_line(const FailureReport& report) {
  FailureReport cut = report;
  cut.op = one_line(report.op, PIPE_BUF / 64);
  cut.message = one_line(report.message, PIPE_BUF / 4);
  return json_text(nlohmann::json(cut)) + "\n";
}

std::optional<FailureReport> parse_report(std::string_view line) { return parse<FailureReport>(line); }

std::string to_line(const RecoveryNote& note) { return json_text(nlohmann::json(note)) + "\n"; }

std::optional<RecoveryNote> parse_note(std::string_view line) { return parse<RecoveryNote>(line); }

// The report decides if there is one: a rank that has lost a peer reports that, whatever code its process ends with.
FailureRole failure_role(const RankOutcome& outcome) {
  if (outcome.report) return outcome.report->own_cause ? FailureRole::Culprit : FailureRole::Victim;
  const bool is_well = has_exited_with(outcome, ExitCode::Success) || has_exited_with(outcome, kSavedExit);
  if (!outcome.ending || is_well) return FailureRole::None;
  return has_exited_with(outcome, ExitCode::PeerLost) ? FailureRole::Victim : FailureRole::Culprit;
}

std::optional<int> find_culprit(std::span<const RankOutcome> outcomes, std::span<const int> failures) {
  const auto outcome = [&](int rank) -> const RankOutcome& { return outcomes[static_cast<std::size_t>(rank)]; };
  auto found = std::ranges::find_if(failures, was_killed_from_outside, outcome);
  if (found == failures.end())
    found = std::ranges::find(failures, FailureRole::Culprit, [&](int rank) { return failure_role(outcome(rank)); });
  return found == failures.end() ? std::nullopt : std::optional<int>(*found);
}

std::string describe_failure(int rank, const RankOutcome& outcome) {
  if (outcome.report) {
    const std::string place = outcome.report->op.empty() ? "" : " at " + outcome.report->op;
    return fmt::format("rank {} failed{}: {}", rank, place, outcome.report->message);
  }
  const Ending ending = outcome.ending.value_or(Ending{});
  if (outcome.out_of_memory) {
    return fmt::format(
        "rank {} was killed because memory ran out, by signal 9 from the kernel (see the kernel log, `dmesg`)", rank);
  }
  if (ending.kind == Ending::Kind::Killed)
    return fmt::format("rank {} was killed by {}", rank, describe_signal(ending.value));
  if (has_exited_with(outcome, ExitCode::PeerLost)) return fmt::format("rank {} lost a peer and ended", rank);
  return fmt::format("rank {} exited with code {}", rank, ending.value);
}

bool is_final(const RankOutcome& outcome) {
  return (outcome.report && outcome.report->is_final) || job_exit_code(outcome) == static_cast<int>(ExitCode::Usage);
}

int exit_code_without_failure(std::span<const RankOutcome> outcomes) {
  const bool has_saved =
      std::ranges::any_of(outcomes, [](const auto& each) { return has_exited_with(each, kSavedExit); });
  return static_cast<int>(has_saved ? kSavedExit : ExitCode::Success);
}

int job_exit_code(const RankOutcome& culprit) {
  const bool usage = culprit.report && culprit.report->usage;
  return static_cast<int>(usage || has_exited_with(culprit, ExitCode::Usage) ? ExitCode::Usage : ExitCode::No);
}

}  // namespace chimera
