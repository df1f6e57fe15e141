#include "launch/local/verdict.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>

#include "core/error.h"
#include "launch/local/signal_inbox.h"

namespace chimera {
namespace {

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

Part part_of(const RankRecord& record) {
  if (record.report) return record.report->own_cause ? Part::Culprit : Part::Victim;
  const bool is_well = exited_with(record, ExitCode::Success) || exited_with(record, kSavedExit);
  if (!record.ending || is_well) return Part::None;
  return exited_with(record, ExitCode::PeerLost) ? Part::Victim : Part::Culprit;
}

std::optional<int> find_culprit(std::span<const RankRecord> records, std::span<const int> failures) {
  const auto record = [&](int rank) -> const RankRecord& { return records[static_cast<std::size_t>(rank)]; };
  auto found = std::ranges::find_if(failures, [&](int rank) { return killed_from_outside(record(rank)); });
  if (found == failures.end()) {
    found = std::ranges::find_if(failures, [&](int rank) { return part_of(record(rank)) == Part::Culprit; });
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
    return fmt::format("rank {} was killed for want of memory, by signal 9 from the kernel (see its log, `dmesg`)",
                       rank);
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
