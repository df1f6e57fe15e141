#include "launch/local/failure_report.h"

#include <limits.h>
#include <signal.h>
#include <string.h>

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.h"

namespace chimera {
namespace {

using nlohmann::json;

constexpr const char* kLeft = "left";
constexpr const char* kResumed = "resumed";

/// Truncates `text` to `length` bytes; replaces control characters by spaces.
std::string one_line(std::string_view text, std::size_t length) {
  std::string line(text.substr(0, length));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return line;
}

std::string dump(const FailureReport& report, std::size_t length) {
  const json object = {{"rank", report.rank},
                       {"op", one_line(report.op, length)},
                       {"message", one_line(report.message, length)},
                       {"own_cause", report.own_cause},
                       {"usage", report.usage},
                       {"final", report.is_final}};
  return json_text(object) + "\n";
}

bool exited_with(const RankRecord& record, ExitCode code) {
  return record.ending && record.ending->kind == Ending::Kind::Exited && record.ending->value == static_cast<int>(code);
}

bool killed_from_outside(const RankRecord& record) {
  return !record.report && record.ending && record.ending->kind == Ending::Kind::Killed &&
         record.ending->value == SIGKILL;
}

std::string signal_name(int number) {
  const char* name = ::sigdescr_np(number);
  return name == nullptr ? "unknown signal" : name;
}

}  // namespace

ExitCode exit_code_of(const FailureReport& report) {
  if (!report.own_cause) return ExitCode::PeerLost;
  return report.usage ? ExitCode::Usage : ExitCode::No;
}

std::string to_line(const FailureReport& report) {
  std::size_t length = PIPE_BUF;
  std::string line = dump(report, length);
  for (; line.size() > PIPE_BUF; line = dump(report, length)) length /= 2;  // escapes lengthen the text
  return line;
}

std::optional<FailureReport> parse_report(std::string_view line) {
  const json object = try_json(line);
  const bool complete = object.is_object() && object.contains("rank") && object["rank"].is_number_integer() &&
                        object.contains("op") && object["op"].is_string() && object.contains("message") &&
                        object["message"].is_string() && object.contains("own_cause") &&
                        object["own_cause"].is_boolean() && object.contains("usage") && object["usage"].is_boolean() &&
                        object.contains("final") && object["final"].is_boolean();
  if (!complete) return std::nullopt;
  return FailureReport{
      object["rank"].get<int>(),       object["op"].get<std::string>(), object["message"].get<std::string>(),
      object["own_cause"].get<bool>(), object["usage"].get<bool>(),     object["final"].get<bool>()};
}

std::string to_line(const RecoveryNote& note) {
  const json object = {
      {"rank", note.rank}, {note.kind == RecoveryNote::Kind::Left ? kLeft : kResumed, note.epoch}, {"step", note.step}};
  return json_text(object) + "\n";
}

std::optional<RecoveryNote> parse_note(std::string_view line) {
  const json object = try_json(line);
  const auto number = [&](const char* name) {
    return object.contains(name) && object[name].is_number_integer()
               ? std::optional<std::int64_t>(object[name].get<std::int64_t>())
               : std::nullopt;
  };
  if (!object.is_object() || !number("rank") || !number("step")) return std::nullopt;
  const auto left = number(kLeft);
  const auto epoch = left ? left : number(kResumed);
  if (!epoch) return std::nullopt;
  return RecoveryNote{static_cast<int>(*number("rank")), left ? RecoveryNote::Kind::Left : RecoveryNote::Kind::Resumed,
                      *epoch, *number("step")};
}

FailureRole failure_role(const RankRecord& record) {
  if (record.report) return record.report->own_cause ? FailureRole::Culprit : FailureRole::Victim;
  const bool is_well = exited_with(record, ExitCode::Success) || exited_with(record, kSavedExit);
  if (!record.ending || is_well) return FailureRole::None;
  return exited_with(record, ExitCode::PeerLost) ? FailureRole::Victim : FailureRole::Culprit;
}

std::optional<int> find_culprit(std::span<const RankRecord> records, std::span<const int> failures) {
  const auto record = [&](int rank) -> const RankRecord& { return records[static_cast<std::size_t>(rank)]; };
  auto found = std::ranges::find_if(failures, [&](int rank) { return killed_from_outside(record(rank)); });
  if (found == failures.end()) {
    found =
        std::ranges::find_if(failures, [&](int rank) { return failure_role(record(rank)) == FailureRole::Culprit; });
  }
  return found == failures.end() ? std::nullopt : std::optional<int>(*found);
}

std::string describe_failure(int rank, const RankRecord& record) {
  if (record.report) {
    const std::string place = record.report->op.empty() ? "" : " at " + record.report->op;
    return fmt::format("rank {} failed{}: {}", rank, place, record.report->message);
  }
  const Ending ending = record.ending.value_or(Ending{});
  if (record.out_of_memory) {
    return fmt::format(
        "rank {} was killed because memory ran out, by signal 9 from the kernel (see the kernel log, `dmesg`)", rank);
  }
  if (ending.kind == Ending::Kind::Killed) {
    return fmt::format("rank {} was killed by signal {} ({})", rank, ending.value, signal_name(ending.value));
  }
  if (exited_with(record, ExitCode::PeerLost)) return fmt::format("rank {} lost a peer and ended", rank);
  return fmt::format("rank {} exited with code {}", rank, ending.value);
}

bool is_final(const RankRecord& record) {
  return (record.report && record.report->is_final) || job_exit_code(record) == static_cast<int>(ExitCode::Usage);
}

int job_exit_code(const RankRecord& culprit) {
  const bool usage = culprit.report && culprit.report->usage;
  return static_cast<int>(usage || exited_with(culprit, ExitCode::Usage) ? ExitCode::Usage : ExitCode::No);
}

}  // namespace chimera
